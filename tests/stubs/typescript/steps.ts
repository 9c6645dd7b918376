// What every client does, over any transport. Reports each step, and throws at the first failure.

import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { BadRequestSchema, ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { ChangeService, ChangeType, type Change } from "./gen/mnemon/v1/changes_pb.js";
import { ErrorReason } from "./gen/mnemon/v1/errors_pb.js";
import { MemoryService } from "./gen/mnemon/v1/memory_pb.js";

export const scope = { user: "ada" };

export function check(condition: unknown, message = "a condition does not hold"): asserts condition {
  if (!condition) throw new Error(message);
}

export function equal(found: unknown, expected: unknown) {
  const texts = [found, expected].map((each) => JSON.stringify(each));
  check(texts[0] === texts[1], `${texts[0]} is not ${texts[1]}`);
}

export async function refusal(call: Promise<unknown>): Promise<ConnectError> {
  try {
    await call;
  } catch (error) {
    return ConnectError.from(error);
  }
  throw new Error("the call should have failed");
}

// Streams of requests need gRPC: elsewhere they are refused, by the server, or by a browser's client (Unknown).
export async function steps(transport: Transport, report: (step: string) => void, bulkRefusal?: Code) {
  const memories = createClient(MemoryService, transport);
  const changes = createClient(ChangeService, transport);

  async function create(content: string): Promise<string> {
    const { memory } = await memories.createMemory({ memory: { content, scope } });
    check(memory);
    return memory.memoryId;
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
  check(id !== "");
  report("create");

  const { results } = await memories.searchMemories({ query: "red kite", filter: { scope }, limit: 1 });
  equal(results[0]?.memory?.content, "A red kite flies over Bern.");
  check((results[0]?.score?.relevance ?? 0) > 0);
  report("search");

  async function* runs() {
    yield { requests: ["one", "two"].map((content) => ({ memory: { content, scope } })) };
    yield { requests: [{ memory: { content: "", scope } }, { memory: { content: "three", scope } }] };
  }
  const outcomes: (string | undefined)[] = [];
  async function bulk() {
    for await (const answer of memories.bulkCreateMemories(runs())) {
      for (const { outcome } of answer.results) {
        if (outcome.case === "error") equal(outcome.value.reason, ErrorReason.INVALID_ARGUMENT);
        outcomes.push(outcome.case);
      }
    }
  }
  if (bulkRefusal === undefined) {
    await bulk();
    equal(outcomes, ["receipt", "receipt", "error", "receipt"]);
    report("bulk");
  } else {
    equal((await refusal(bulk())).code, bulkRefusal);
    report("bulk is refused");
  }

  const missing = await refusal(memories.getMemory({ memoryId: "nobody" }));
  equal(missing.code, Code.NotFound);
  const [info] = missing.findDetails(ErrorInfoSchema);
  equal([info?.domain, info?.reason], ["mnemon", "MEMORY_NOT_FOUND"]);
  const [wrong] = (await refusal(memories.createMemory({ memory: { scope } }))).findDetails(BadRequestSchema);
  equal(wrong?.fieldViolations[0]?.field, "memory.content");
  report("error details");

  const late = await refusal(
    (async () => {
      for await (const _ of changes.watchChanges({}, { timeoutMs: 300 }));
    })(),
  );
  equal(late.code, Code.DeadlineExceeded);
  report("deadline");

  const leaving = new AbortController();
  const told = watched({ case: undefined }, leaving.signal);
  await next(told);
  const seen = await create("seen live");
  const { change, cursor } = await next(told);
  equal(change?.type, ChangeType.MEMORY_CREATED);
  equal(change?.recordId, seen);
  report("watch");

  leaving.abort();
  equal((await refusal(told.next())).code, Code.Canceled);
  report("cancel");

  const missed = await create("missed");
  const resumed = new AbortController();
  const again = watched({ case: "cursor", value: cursor }, resumed.signal);
  await next(again);
  equal((await next(again)).change?.recordId, missed);
  resumed.abort();
  report("resume");
}
