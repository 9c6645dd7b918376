// Calls the server at the given address through generated stubs. Prints a line per step and stops at the first failure.

import assert from "node:assert/strict";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { BadRequestSchema, ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { ChangeService, ChangeType, type Change } from "./gen/mnemon/v1/changes_pb.js";
import { ErrorReason } from "./gen/mnemon/v1/errors_pb.js";
import { MemoryService } from "./gen/mnemon/v1/memory_pb.js";

const transport = createGrpcTransport({ baseUrl: `http://${process.argv[2]}` });
const memories = createClient(MemoryService, transport);
const changes = createClient(ChangeService, transport);
const scope = { user: "ada" };

async function create(content: string): Promise<string> {
  const { memory } = await memories.createMemory({ memory: { content, scope } });
  assert(memory);
  return memory.memoryId;
}

async function refusal(call: Promise<unknown>): Promise<ConnectError> {
  try {
    await call;
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error("the call should have failed");
}

// The cursor of a watch once it has started, then the first change and the cursor after it.
async function* watched(start: { case: "cursor"; value: string } | { case: undefined }, signal: AbortSignal) {
  for await (const { cursor, payload } of changes.watchChanges({ start }, { signal })) {
    if (payload.case === "started") yield { cursor, change: undefined };
    if (payload.case === "batch") for (const change of payload.value.changes) yield { cursor, change };
  }
}

async function next(told: AsyncGenerator<{ cursor: string; change?: Change }>) {
  const { value } = await told.next();
  return value as { cursor: string; change?: Change };
}

const id = await create("A red kite flies over Bern.");
assert.notEqual(id, "");
console.log("create");

const { results } = await memories.searchMemories({ query: "red kite", filter: { scope }, limit: 1 });
assert.equal(results[0]?.memory?.memoryId, id);
assert((results[0]?.score?.relevance ?? 0) > 0);
console.log("search");

async function* runs() {
  yield { requests: ["one", "two"].map((content) => ({ memory: { content, scope } })) };
  yield { requests: [{ memory: { content: "", scope } }, { memory: { content: "three", scope } }] };
}
const outcomes: (string | undefined)[] = [];
for await (const answer of memories.bulkCreateMemories(runs())) {
  for (const { outcome } of answer.results) {
    if (outcome.case === "error") assert.equal(outcome.value.reason, ErrorReason.INVALID_ARGUMENT);
    outcomes.push(outcome.case);
  }
}
assert.deepEqual(outcomes, ["receipt", "receipt", "error", "receipt"]);
console.log("bulk");

const missing = await refusal(memories.getMemory({ memoryId: "nobody" }));
assert.equal(missing.code, Code.NotFound);
const [info] = missing.findDetails(ErrorInfoSchema);
assert.deepEqual([info?.domain, info?.reason], ["mnemon", "MEMORY_NOT_FOUND"]);
const [wrong] = (await refusal(memories.createMemory({ memory: { scope } }))).findDetails(BadRequestSchema);
assert.equal(wrong?.fieldViolations[0]?.field, "memory.content");
console.log("error details");

const late = await refusal(
  (async () => {
    for await (const _ of changes.watchChanges({}, { timeoutMs: 300 }));
  })(),
);
assert.equal(late.code, Code.DeadlineExceeded);
console.log("deadline");

const leaving = new AbortController();
const told = watched({ case: undefined }, leaving.signal);
await next(told);
const seen = await create("seen live");
const { change, cursor } = await next(told);
assert.equal(change?.type, ChangeType.MEMORY_CREATED);
assert.equal(change?.recordId, seen);
console.log("watch");

leaving.abort();
assert.equal((await refusal(told.next())).code, Code.Canceled);
console.log("cancel");

const missed = await create("missed");
const resumed = new AbortController();
const again = watched({ case: "cursor", value: cursor }, resumed.signal);
await next(again);
assert.equal((await next(again)).change?.recordId, missed);
resumed.abort();
console.log("resume");
