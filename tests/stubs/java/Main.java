// Calls the server at the given address through generated stubs. Prints a line per step and stops at the first failure.

import com.google.protobuf.Any;
import com.google.protobuf.Message;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import dev.mnemon.v1.BulkCreateMemoriesRequest;
import dev.mnemon.v1.BulkCreateMemoriesResponse;
import dev.mnemon.v1.Change;
import dev.mnemon.v1.ChangeServiceGrpc;
import dev.mnemon.v1.ChangeType;
import dev.mnemon.v1.CreateMemoryRequest;
import dev.mnemon.v1.ErrorReason;
import dev.mnemon.v1.GetMemoryRequest;
import dev.mnemon.v1.Memory;
import dev.mnemon.v1.MemoryFilter;
import dev.mnemon.v1.MemoryMatch;
import dev.mnemon.v1.MemoryServiceGrpc;
import dev.mnemon.v1.Scope;
import dev.mnemon.v1.SearchMemoriesRequest;
import dev.mnemon.v1.WatchChangesRequest;
import dev.mnemon.v1.WatchChangesResponse;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.lite.ProtoLiteUtils;
import io.grpc.stub.StreamObserver;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

final class Main {
  private static final Scope SCOPE = Scope.newBuilder().setUser("ada").build();
  private static final Metadata.Key<com.google.rpc.Status> DETAILS =
      Metadata.Key.of(
          "grpc-status-details-bin",
          ProtoLiteUtils.metadataMarshaller(com.google.rpc.Status.getDefaultInstance()));

  private final MemoryServiceGrpc.MemoryServiceBlockingStub memories;
  private final MemoryServiceGrpc.MemoryServiceStub streaming;
  private final ChangeServiceGrpc.ChangeServiceBlockingStub changes;

  private Main(ManagedChannel channel) {
    memories = MemoryServiceGrpc.newBlockingStub(channel);
    streaming = MemoryServiceGrpc.newStub(channel);
    changes = ChangeServiceGrpc.newBlockingStub(channel);
  }

  private static void check(boolean holds, Object said) {
    if (!holds) throw new AssertionError(said);
  }

  private static CreateMemoryRequest request(String content) {
    return CreateMemoryRequest.newBuilder()
        .setMemory(Memory.newBuilder().setContent(content).setScope(SCOPE))
        .build();
  }

  private String create(String content) {
    return memories.createMemory(request(content)).getMemory().getMemoryId();
  }

  private static StatusRuntimeException refusal(Runnable call) {
    try {
      call.run();
    } catch (StatusRuntimeException error) {
      return error;
    }
    throw new AssertionError("the call should have failed");
  }

  private static <T extends Message> T detail(StatusRuntimeException error, Class<T> type) throws Exception {
    for (Any each : error.getTrailers().get(DETAILS).getDetailsList())
      if (each.is(type)) return each.unpack(type);
    throw new AssertionError("no such detail: " + error);
  }

  private void search(String id) {
    MemoryMatch found =
        memories
            .searchMemories(
                SearchMemoriesRequest.newBuilder()
                    .setQuery("red kite")
                    .setFilter(MemoryFilter.newBuilder().setScope(SCOPE))
                    .setLimit(1)
                    .build())
            .getResults(0);
    check(found.getMemory().getMemoryId().equals(id) && found.getScore().getRelevance() > 0, found);
  }

  private void bulk() throws Exception {
    StringBuilder outcomes = new StringBuilder();
    CompletableFuture<String> ended = new CompletableFuture<>();
    StreamObserver<BulkCreateMemoriesRequest> runs =
        streaming.bulkCreateMemories(
            new StreamObserver<BulkCreateMemoriesResponse>() {
              @Override
              public void onNext(BulkCreateMemoriesResponse answer) {
                answer.getResultsList().forEach(
                    result -> {
                      boolean invalid = result.getError().getReason() == ErrorReason.ERROR_REASON_INVALID_ARGUMENT;
                      outcomes.append(result.hasReceipt() ? "+" : invalid ? "-" : "?");
                    });
              }

              @Override
              public void onError(Throwable error) {
                ended.completeExceptionally(error);
              }

              @Override
              public void onCompleted() {
                ended.complete(outcomes.toString());
              }
            });
    for (List<String> contents : List.of(List.of("one", "two"), List.of("", "three"))) {
      BulkCreateMemoriesRequest.Builder run = BulkCreateMemoriesRequest.newBuilder();
      contents.forEach(content -> run.addRequests(request(content)));
      runs.onNext(run.build());
    }
    runs.onCompleted();
    String told = ended.get(10, TimeUnit.SECONDS);
    check(told.equals("++-+"), told);
  }

  private void errorDetails() throws Exception {
    StatusRuntimeException missing =
        refusal(() -> memories.getMemory(GetMemoryRequest.newBuilder().setMemoryId("nobody").build()));
    check(missing.getStatus().getCode() == Status.Code.NOT_FOUND, missing);
    ErrorInfo info = detail(missing, ErrorInfo.class);
    check(info.getDomain().equals("mnemon") && info.getReason().equals("MEMORY_NOT_FOUND"), info);
    BadRequest wrong = detail(refusal(() -> create("")), BadRequest.class);
    check(wrong.getFieldViolations(0).getField().equals("memory.content"), wrong);
  }

  private void deadline() {
    StatusRuntimeException late =
        refusal(
            () ->
                changes
                    .withDeadlineAfter(300, TimeUnit.MILLISECONDS)
                    .watchChanges(WatchChangesRequest.getDefaultInstance())
                    .forEachRemaining(message -> {}));
    check(late.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED, late);
  }

  /** Opens a watch and reads the message that confirms it. */
  private Iterator<WatchChangesResponse> watch(WatchChangesRequest request) {
    Iterator<WatchChangesResponse> told = changes.watchChanges(request);
    check(told.next().hasStarted(), "the watch is not confirmed");
    return told;
  }

  /** The next message that has changes. */
  private static WatchChangesResponse next(Iterator<WatchChangesResponse> told) {
    for (WatchChangesResponse message = told.next(); ; message = told.next())
      if (message.hasBatch()) return message;
  }

  private String watchAndLeave() {
    Context.CancellableContext context = Context.current().withCancellation();
    Context before = context.attach();
    Iterator<WatchChangesResponse> told = watch(WatchChangesRequest.getDefaultInstance());
    context.detach(before);
    String seen = create("seen live");
    WatchChangesResponse message = next(told);
    Change change = message.getBatch().getChanges(0);
    check(change.getType() == ChangeType.CHANGE_TYPE_MEMORY_CREATED, change);
    check(change.getRecordId().equals(seen), change);
    System.out.println("watch");

    context.cancel(null);
    StatusRuntimeException left = refusal(() -> told.forEachRemaining(each -> {}));
    check(left.getStatus().getCode() == Status.Code.CANCELLED, left);
    System.out.println("cancel");
    return message.getCursor();
  }

  private void run() throws Exception {
    String id = create("A red kite flies over Bern.");
    System.out.println("create");
    search(id);
    System.out.println("search");
    bulk();
    System.out.println("bulk");
    errorDetails();
    System.out.println("error details");
    deadline();
    System.out.println("deadline");
    String cursor = watchAndLeave();
    String missed = create("missed");
    WatchChangesResponse first = next(watch(WatchChangesRequest.newBuilder().setCursor(cursor).build()));
    check(first.getBatch().getChanges(0).getRecordId().equals(missed), first);
    System.out.println("resume");
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    try {
      new Main(channel).run();
    } finally {
      channel.shutdownNow();
    }
  }
}
