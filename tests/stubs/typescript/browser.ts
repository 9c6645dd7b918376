// Serves page.js on an origin of its own and opens it in a browser without a window. Prints what the page reports.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

const [port, browser, profile, server] = process.argv.slice(2) as [string, string, string, string];
const script = readFileSync(new URL("page.js", import.meta.url));
const site = createServer(async (request, response) => {
  if (request.method === "POST") {
    const line = await text(request);
    response.end();
    if (line === "end" || line.startsWith("failed")) end(line);
    else console.log(line);
  } else if (request.url === "/page.js") {
    response.setHeader("content-type", "text/javascript").end(script);
  } else {
    response.setHeader("content-type", "text/html").end('<script type="module" src="page.js"></script>');
  }
});
site.listen(Number(port), "127.0.0.1", () => {});
const flags = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`];
const process_ = spawn(browser, [...flags, `http://127.0.0.1:${port}/?server=http://${server}`], { stdio: "ignore" });

function end(line: string) {
  process_.kill();
  if (line !== "end") console.error(line);
  process.exit(line === "end" ? 0 : 1);
}
