// Calls the server at the given address through generated stubs. Prints a line per step and stops at the first failure.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "mnemon/v1/changes.grpc.pb.h"
#include "mnemon/v1/memory.grpc.pb.h"

namespace v1 = mnemon::v1;
using grpc::ClientContext;
using grpc::Status;
using grpc::StatusCode;
using Watch = grpc::ClientReader<v1::WatchChangesResponse>;

std::unique_ptr<v1::MemoryService::Stub> memories;
std::unique_ptr<v1::ChangeService::Stub> changes;

void check(bool holds, const std::string& said) {
  if (holds) return;
  std::cerr << said << std::endl;
  std::exit(1);
}

void must(const Status& status) { check(status.ok(), status.error_message()); }

void fill(v1::CreateMemoryRequest* request, const std::string& content) {
  request->mutable_memory()->set_content(content);
  request->mutable_memory()->mutable_scope()->set_user("ada");
}

std::string create(const std::string& content) {
  ClientContext context;
  v1::CreateMemoryRequest request;
  v1::CreateMemoryResponse answer;
  fill(&request, content);
  must(memories->CreateMemory(&context, request, &answer));
  return answer.memory().memory_id();
}

void search(const std::string& id) {
  ClientContext context;
  v1::SearchMemoriesRequest request;
  v1::SearchMemoriesResponse answer;
  request.set_query("red kite");
  request.set_limit(1);
  request.mutable_filter()->mutable_scope()->set_user("ada");
  must(memories->SearchMemories(&context, request, &answer));
  check(answer.results_size() == 1 && answer.results(0).memory().memory_id() == id, answer.DebugString());
  check(answer.results(0).score().relevance() > 0, answer.DebugString());
}

void bulk() {
  ClientContext context;
  auto stream = memories->BulkCreateMemories(&context);
  for (const auto& contents : std::vector<std::vector<std::string>>{{"one", "two"}, {"", "three"}}) {
    v1::BulkCreateMemoriesRequest run;
    for (const auto& content : contents) fill(run.add_requests(), content);
    check(stream->Write(run), "the stream is broken");
  }
  stream->WritesDone();
  std::string outcomes;
  v1::BulkCreateMemoriesResponse answer;
  while (stream->Read(&answer)) {
    for (const auto& result : answer.results()) {
      if (result.has_error()) check(result.error().reason() == v1::ERROR_REASON_INVALID_ARGUMENT, result.DebugString());
      outcomes += result.has_error() ? '-' : '+';
    }
  }
  must(stream->Finish());
  check(outcomes == "++-+", outcomes);
}

// The detail of this type; it must be there.
template <typename Detail>
Detail detail_of(const Status& status) {
  google::rpc::Status said;
  check(said.ParseFromString(status.error_details()), "no details");
  Detail found;
  for (const auto& detail : said.details())
    if (detail.UnpackTo(&found)) return found;
  check(false, "no such detail: " + said.DebugString());
  return found;
}

void error_details() {
  ClientContext first, second;
  v1::GetMemoryRequest missing;
  v1::GetMemoryResponse nothing;
  missing.set_memory_id("nobody");
  Status status = memories->GetMemory(&first, missing, &nothing);
  check(status.error_code() == StatusCode::NOT_FOUND, status.error_message());
  auto info = detail_of<google::rpc::ErrorInfo>(status);
  check(info.domain() == "mnemon" && info.reason() == "MEMORY_NOT_FOUND", info.DebugString());

  v1::CreateMemoryRequest empty;
  v1::CreateMemoryResponse answer;
  fill(&empty, "");
  auto wrong = detail_of<google::rpc::BadRequest>(memories->CreateMemory(&second, empty, &answer));
  check(wrong.field_violations(0).field() == "memory.content", wrong.DebugString());
}

// Opens a watch and reads the message that confirms it.
std::unique_ptr<Watch> watch(ClientContext* context, const std::string& cursor = "") {
  v1::WatchChangesRequest request;
  v1::WatchChangesResponse message;
  if (!cursor.empty()) request.set_cursor(cursor);
  auto stream = changes->WatchChanges(context, request);
  check(stream->Read(&message) && message.has_started(), message.DebugString());
  return stream;
}

// The next message that has changes.
v1::WatchChangesResponse next(Watch* stream) {
  v1::WatchChangesResponse message;
  while (!message.has_batch()) {
    if (!stream->Read(&message)) check(false, stream->Finish().error_message());
  }
  return message;
}

StatusCode end_of(Watch* stream) {
  v1::WatchChangesResponse message;
  while (stream->Read(&message)) {
  }
  return stream->Finish().error_code();
}

int main(int, char** arguments) {
  auto channel = grpc::CreateChannel(arguments[1], grpc::InsecureChannelCredentials());
  memories = v1::MemoryService::NewStub(channel);
  changes = v1::ChangeService::NewStub(channel);

  const auto id = create("A red kite flies over Bern.");
  std::cout << "create" << std::endl;
  search(id);
  std::cout << "search" << std::endl;
  bulk();
  std::cout << "bulk" << std::endl;
  error_details();
  std::cout << "error details" << std::endl;

  ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  check(end_of(watch(&late).get()) == StatusCode::DEADLINE_EXCEEDED, "the deadline was not kept");
  std::cout << "deadline" << std::endl;

  ClientContext leaving;
  auto stream = watch(&leaving);
  const auto seen = create("seen live");
  const auto message = next(stream.get());
  const auto& change = message.batch().changes(0);
  check(change.type() == v1::CHANGE_TYPE_MEMORY_CREATED && change.record_id() == seen, change.DebugString());
  std::cout << "watch" << std::endl;

  leaving.TryCancel();
  check(end_of(stream.get()) == StatusCode::CANCELLED, "the watch was not cancelled");
  std::cout << "cancel" << std::endl;

  ClientContext resumed;
  const auto missed = create("missed");
  auto again = watch(&resumed, message.cursor());
  check(next(again.get()).batch().changes(0).record_id() == missed, "what was missed is not told first");
  resumed.TryCancel();
  end_of(again.get());
  std::cout << "resume" << std::endl;
}
