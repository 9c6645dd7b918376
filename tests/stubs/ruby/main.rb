# Calls the server at the given address through generated stubs. Prints a line per step and stops at the first failure.

require "google/protobuf/well_known_types"
require "google/rpc/status_pb"
require "google/rpc/error_details_pb"
require "mnemon/v1/changes_services_pb"
require "mnemon/v1/memory_services_pb"

include Mnemon::V1

SCOPE = Scope.new(user: "ada")
MEMORIES = MemoryService::Stub.new(ARGV[0], :this_channel_is_insecure)
CHANGES = ChangeService::Stub.new(ARGV[0], :this_channel_is_insecure)

def check(holds, said = "")
  raise said.inspect unless holds
end

def request(content)
  CreateMemoryRequest.new(memory: Memory.new(content: content, scope: SCOPE))
end

def create(content)
  MEMORIES.create_memory(request(content)).memory.memory_id
end

def refusal
  yield
rescue GRPC::BadStatus => error
  error
else
  raise "the call should have failed"
end

# The detail of this type. It must exist.
def detail_of(error, type)
  status = Google::Rpc::Status.decode(error.metadata["grpc-status-details-bin"])
  status.details.find { |each| each.is(type) }.unpack(type)
end

# The messages of a watch, of which the first confirms it, and the call.
def watch(**start)
  call = CHANGES.watch_changes(WatchChangesRequest.new(**start), return_op: true)
  told = call.execute
  check(told.next.payload == :started)
  [told, call]
end

# The next message that has changes.
def following(told)
  loop do
    message = told.next
    return message if message.payload == :batch
  end
end

id = create("A red kite flies over Bern.")
puts "create"

query = SearchMemoriesRequest.new(query: "red kite", filter: MemoryFilter.new(scope: SCOPE), limit: 1)
found = MEMORIES.search_memories(query).results
check(found[0].memory.memory_id == id && found[0].score.relevance > 0, found)
puts "search"

runs = [%w[one two], ["", "three"]].map do |contents|
  BulkCreateMemoriesRequest.new(requests: contents.map { |content| request(content) })
end
results = MEMORIES.bulk_create_memories(runs).flat_map { |answer| answer.results.to_a }
check(results.map(&:outcome) == %i[receipt receipt error receipt], results)
check(results[2].error.reason == :ERROR_REASON_INVALID_ARGUMENT, results)
puts "bulk"

missing = refusal { MEMORIES.get_memory(GetMemoryRequest.new(memory_id: "nobody")) }
check(missing.is_a?(GRPC::NotFound), missing)
info = detail_of(missing, Google::Rpc::ErrorInfo)
check([info.domain, info.reason] == %w[mnemon MEMORY_NOT_FOUND], info)
wrong = detail_of(refusal { create("") }, Google::Rpc::BadRequest)
check(wrong.field_violations[0].field == "memory.content", wrong)
puts "error details"

late = refusal { CHANGES.watch_changes(WatchChangesRequest.new, deadline: Time.now + 0.3).each { |_| } }
check(late.is_a?(GRPC::DeadlineExceeded), late)
puts "deadline"

told, call = watch
seen = create("seen live")
message = following(told)
change = message.batch.changes[0]
check([change.type, change.record_id] == [:CHANGE_TYPE_MEMORY_CREATED, seen], change)
puts "watch"

call.cancel
check(refusal { loop { told.next } }.is_a?(GRPC::Cancelled))
puts "cancel"

missed = create("missed")
again, call = watch(cursor: message.cursor)
check(following(again).batch.changes[0].record_id == missed)
call.cancel
puts "resume"
