// A page that makes one call over gRPC-Web and sends its trace to its website.

import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { registerInstrumentations } from "@opentelemetry/instrumentation";
import { FetchInstrumentation } from "@opentelemetry/instrumentation-fetch";
import { BatchSpanProcessor, WebTracerProvider } from "@opentelemetry/sdk-trace-web";
import { MemoryService } from "./gen/mnemon/v1/memory_pb.js";
import { given, run, tell, told } from "./site.js";

const { endpoint = "", token } = given;
const collector = `${location.origin}/v1/traces`;

// A span ends some time after its call, once the browser has written down how long the request took.
let ended = () => {};
const traced = new Promise<void>((resolve) => (ended = resolve));
const done = async () => {};
const noticing = { onStart: () => {}, onEnd: () => ended(), forceFlush: done, shutdown: done };

const provider = new WebTracerProvider({
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: collector })), noticing],
});
provider.register();
registerInstrumentations({
  instrumentations: [
    new FetchInstrumentation({ propagateTraceHeaderCorsUrls: [new RegExp(`^${endpoint}/`)], ignoreUrls: [collector, told] }),
  ],
});

await run(async () => {
  const transport = createGrpcWebTransport({
    baseUrl: endpoint,
    interceptors: [
      (next) => (request) => {
        request.header.set("authorization", `Bearer ${token}`);
        return next(request);
      },
    ],
  });
  const { memory } = await createClient(MemoryService, transport).createMemory({ memory: { content: "Ada likes tea" } });
  await traced;
  await provider.forceFlush();
  await tell(memory?.memoryId ?? "");
});
