// A page that uses each client of browsers; its website is of another origin than the server. Tells it a line per client.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { GrpcWebClientBase, MethodDescriptor, RpcError, StatusCode } from "grpc-web";
import { ChangeService, WatchChangesRequestSchema, WatchChangesResponseSchema } from "./gen/mnemon/v1/changes_pb.js";
import { GetMemoryRequestSchema, GetMemoryResponseSchema, MemoryService } from "./gen/mnemon/v1/memory_pb.js";
import { given, run, tell } from "./site.js";
import { check, equal, scope, steps } from "./steps.js";

const { server = "" } = given;
const create_path = `${server}/${MemoryService.typeName}/CreateMemory`;
const watch_path = `${server}/${ChangeService.typeName}/WatchChanges`;

async function createMemory(content: string): Promise<string> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ memory: { content, scope } });
  const answer = await (await fetch(create_path, { method: "POST", headers, body })).json();
  return answer.memory.memoryId;
}

// The client of the gRPC project, with messages of protobuf-es.
async function grpcWeb() {
  const client = new GrpcWebClientBase({ format: "text" });
  const Anything = Object as unknown as new () => any;
  const get = new MethodDescriptor<any, any>(
    `/${MemoryService.typeName}/GetMemory`, "unary", Anything, Anything,
    (each: any) => toBinary(GetMemoryRequestSchema, each),
    (bytes: Uint8Array) => fromBinary(GetMemoryResponseSchema, bytes),
  );
  const memoryId = await createMemory("for grpc-web");
  const call = (id: string) =>
    client.unaryCall(server + get.getName(), create(GetMemoryRequestSchema, { memoryId: id }), {}, get);
  equal((await call(memoryId)).memory.content, "for grpc-web");
  const error = await call("nobody").then(() => undefined, (each: RpcError) => each);
  check(error?.code === StatusCode.NOT_FOUND);
  check(atob(error.metadata["grpc-status-details-bin"] ?? "").includes("MEMORY_NOT_FOUND"));
  const watch = new MethodDescriptor<any, any>(
    `/${ChangeService.typeName}/WatchChanges`, "server_streaming", Anything, Anything,
    (each: any) => toBinary(WatchChangesRequestSchema, each),
    (bytes: Uint8Array) => fromBinary(WatchChangesResponseSchema, bytes),
  );
  const stream = client.serverStreaming(server + watch.getName(), create(WatchChangesRequestSchema), {}, watch);
  const first = await new Promise<any>((resolve, reject) => stream.on("data", resolve).on("error", reject));
  equal(first.payload.case, "started");
  stream.cancel();
}

// Server-sent events: a browser reconnects by itself, and says which event it has seen last.
async function eventSource() {
  const source = new EventSource(`${watch_path}?encoding=json&message=${encodeURIComponent("{}")}`);
  const events: MessageEvent[] = [];
  let told = () => {};
  source.onmessage = (event) => {
    events.push(event);
    told();
  };
  const event = async (index: number) => {
    while (events.length <= index) await new Promise<void>((resolve) => (told = resolve));
    return events[index] as MessageEvent;
  };
  check("started" in JSON.parse((await event(0)).data));
  const seen = await createMemory("seen by an event source");
  equal(JSON.parse((await event(1)).data).batch.changes[0].recordId, seen);
  check((await event(1)).lastEventId !== "");
  source.close();
}

await run(async () => {
  for (const [name, make] of [["connect", createConnectTransport], ["grpc-web", createGrpcWebTransport]] as const) {
    await steps(make({ baseUrl: server }), () => {}, Code.Unknown);
    await tell(name);
  }
  const binary = createConnectTransport({ baseUrl: server, useBinaryFormat: true, useHttpGet: true });
  await steps(binary, () => {}, Code.Unknown);
  await tell("connect in binary");
  await grpcWeb();
  await tell("the package grpc-web");
  await eventSource();
  await tell("EventSource");
});
