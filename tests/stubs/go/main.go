// Calls the server at the given address through generated stubs. Prints a line per step and stops at the first failure.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	v1 "github.com/mnemon-ai/mnemon/gen/go/mnemon/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	memories v1.MemoryServiceClient
	changes  v1.ChangeServiceClient
	scope    = &v1.Scope{User: "ada"}
)

func check(holds bool, said ...interface{}) {
	if !holds {
		log.Fatalln(said...)
	}
}

func must(err error) {
	check(err == nil, err)
}

func create(content string) string {
	request := &v1.CreateMemoryRequest{Memory: &v1.Memory{Content: content, Scope: scope}}
	answer, err := memories.CreateMemory(context.Background(), request)
	must(err)
	return answer.Memory.MemoryId
}

// Opens a watch and reads the message that confirms it.
func watch(ctx context.Context, request *v1.WatchChangesRequest) v1.ChangeService_WatchChangesClient {
	stream, err := changes.WatchChanges(ctx, request)
	must(err)
	message, err := stream.Recv()
	must(err)
	check(message.GetStarted() != nil, message)
	return stream
}

// The next message that has changes.
func next(stream v1.ChangeService_WatchChangesClient) *v1.WatchChangesResponse {
	for {
		message, err := stream.Recv()
		must(err)
		if message.GetBatch() != nil {
			return message
		}
	}
}

func bulk() {
	stream, err := memories.BulkCreateMemories(context.Background())
	must(err)
	for _, contents := range [][]string{{"one", "two"}, {"", "three"}} {
		run := &v1.BulkCreateMemoriesRequest{}
		for _, content := range contents {
			run.Requests = append(run.Requests, &v1.CreateMemoryRequest{Memory: &v1.Memory{Content: content, Scope: scope}})
		}
		must(stream.Send(run))
	}
	must(stream.CloseSend())
	outcomes := ""
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			break
		}
		must(err)
		for _, result := range answer.Results {
			if failed := result.GetError(); failed != nil {
				check(failed.Reason == v1.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, failed)
				outcomes += "-"
			} else {
				outcomes += "+"
			}
		}
	}
	check(outcomes == "++-+", outcomes)
}

func errorDetails() {
	_, err := memories.GetMemory(context.Background(), &v1.GetMemoryRequest{MemoryId: "nobody"})
	check(status.Code(err) == codes.NotFound, err)
	info, _ := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	check(info.GetDomain() == "mnemon" && info.GetReason() == "MEMORY_NOT_FOUND", err)
	_, err = memories.CreateMemory(context.Background(), &v1.CreateMemoryRequest{Memory: &v1.Memory{Scope: scope}})
	for _, detail := range status.Convert(err).Details() {
		if wrong, ok := detail.(*errdetails.BadRequest); ok {
			check(wrong.FieldViolations[0].Field == "memory.content", wrong)
			return
		}
	}
	log.Fatalln("no field is named", err)
}

func main() {
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	must(err)
	memories, changes = v1.NewMemoryServiceClient(connection), v1.NewChangeServiceClient(connection)

	id := create("A red kite flies over Bern.")
	fmt.Println("create")

	query := &v1.SearchMemoriesRequest{Query: "red kite", Filter: &v1.MemoryFilter{Scope: scope}, Limit: 1}
	found, err := memories.SearchMemories(context.Background(), query)
	must(err)
	check(found.Results[0].Memory.MemoryId == id && found.Results[0].Score.Relevance > 0, found)
	fmt.Println("search")

	bulk()
	fmt.Println("bulk")

	errorDetails()
	fmt.Println("error details")

	short, end := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer end()
	_, err = watch(short, &v1.WatchChangesRequest{}).Recv()
	check(status.Code(err) == codes.DeadlineExceeded, err)
	fmt.Println("deadline")

	ctx, leave := context.WithCancel(context.Background())
	stream := watch(ctx, &v1.WatchChangesRequest{})
	seen := create("seen live")
	message := next(stream)
	change := message.GetBatch().Changes[0]
	check(change.Type == v1.ChangeType_CHANGE_TYPE_MEMORY_CREATED && change.RecordId == seen, change)
	fmt.Println("watch")

	leave()
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	check(status.Code(err) == codes.Canceled, err)
	fmt.Println("cancel")

	missed := create("missed")
	behind := &v1.WatchChangesRequest{Start: &v1.WatchChangesRequest_Cursor{Cursor: message.Cursor}}
	check(next(watch(context.Background(), behind)).GetBatch().Changes[0].RecordId == missed, missed)
	fmt.Println("resume")
}
