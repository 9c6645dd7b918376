// Calls the server at the given address over a protocol. Prints a line per step and stops at the first failure.

import { Code } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  type ConnectTransportOptions,
} from "@connectrpc/connect-node";
import { check, steps } from "./steps.js";

const [address, protocol = "grpc"] = process.argv.slice(2);
const options: ConnectTransportOptions = { baseUrl: `http://${address}`, httpVersion: "1.1" };
const transports = {
  grpc: () => createGrpcTransport({ baseUrl: options.baseUrl }),
  connect: () => createConnectTransport({ ...options, useBinaryFormat: true }),
  "connect-json": () => createConnectTransport({ ...options, useBinaryFormat: false, useHttpGet: true }),
  "grpc-web": () => createGrpcWebTransport(options),
};
check(protocol in transports, `there are ${Object.keys(transports).join(", ")}`);
await steps(transports[protocol as keyof typeof transports](), console.log, protocol === "grpc" ? undefined : Code.Unimplemented);
