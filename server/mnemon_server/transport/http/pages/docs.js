// Shows openapi.json: services, methods with their fields, and a form that makes a call.

const source = new URL("openapi.json", document.baseURI);
const content = document.getElementById("content");
const services = document.getElementById("services");
// Of a stream that does not end, the newest messages are shown, and of each its beginning.
const [MESSAGES_SHOWN, CHARACTERS_SHOWN] = [100, 20_000];

try {
  const response = await fetch(source);
  if (!response.ok) throw new Error(`status ${response.status}`);
  show(await response.json());
} catch (error) {
  content.replaceChildren(element("p", {}, `openapi.json cannot be read: ${error.message}`));
}

function show(api) {
  const methods = Object.entries(api.paths)
    .filter(([, { post }]) => post)
    .map(([path, { post }]) => ({ path, ...post }));
  const sections = api.tags.map((tag) => {
    const own = methods.filter((method) => method.tags.includes(tag.name));
    return element("section", { id: tag.name }, element("h2", {}, tag.name), ...markdown(tag.description),
      ...own.map((method) => shownMethod(api, method)));
  });
  services.replaceChildren(...api.tags.map(({ name }) => {
    const own = methods.filter((method) => method.tags.includes(name));
    const links = own.map(({ operationId, summary }) => element("li", {}, element("a", { href: `#${operationId}` }, summary)));
    return element("li", {}, element("a", { href: `#${name}` }, name), element("ul", {}, ...links));
  }));
  content.replaceChildren(...markdown(api.info.description), element("p", {}, `Version ${api.info.version}`), ...sections);
  const field = document.getElementById("find");
  field.addEventListener("input", () => find(field.value));
  field.value = new URLSearchParams(location.search).get("find") ?? "";
  find(field.value);
  addEventListener("hashchange", open);
  open();
}

// Hides the methods that lack a word in their name, in their description and among the words that they are also called by.
function find(text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const section of content.querySelectorAll("section")) {
    const methods = [...section.querySelectorAll(":scope > details")];
    for (const each of methods) each.hidden = !words.every((word) => each.dataset.text.includes(word));
    section.hidden = text !== "" && methods.every((each) => each.hidden);
  }
  for (const link of services.querySelectorAll("a")) {
    link.parentElement.hidden = document.getElementById(link.hash.slice(1)).hidden;
  }
}

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
  target?.scrollIntoView();
}

function shownMethod(api, method) {
  const { path, summary, description, deprecated, operationId, "x-also-called": words = "" } = method;
  const sentence = description.split(/(?<=\.)\s/)[0];
  const details = element("details", { id: operationId },
    element("summary", {}, element("b", {}, summary), element("span", {}, sentence), deprecated ? " (deprecated)" : ""));
  details.dataset.text = `${path} ${description} ${words}`.toLowerCase();
  whenOpened(details, () => {
    const { schema, example } = method.requestBody.content["application/json"];
    const answers = Object.entries(method.responses["200"].content);
    return [
      ...markdown(description),
      element("p", {}, element("code", {}, `POST ${path}`)), ...form(path, example),
      element("h3", {}, "Request"), shownType(api, schema),
      element("h3", {}, "Answer"),
      ...answers.flatMap(([type, each]) => [element("p", {}, element("code", {}, type)), shownType(api, each.schema)]),
      element("h3", {}, "Errors"),
      ...["4XX", "5XX"].flatMap((range) => markdown(resolved(api, method.responses[range]).description)),
      shownType(api, { $ref: "#/components/schemas/Error" }),
    ];
  });
  return details;
}

// What a value is, and its fields, which are made once they are looked at.
function shownType(api, given) {
  const schema = present(given);
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) return element("div", {}, ...markdown(schema.description), ...alternatives.map((each) => shownType(api, each)));
  const { inner } = kind(schema);
  const type = resolved(api, inner);
  if (!type.properties && !type.enum) return element("div", {}, element("p", {}, name(schema)), ...markdown(schema.description));
  const details = element("details", {}, element("summary", {}, element("code", {}, type.title ?? name(schema))));
  whenOpened(details, () => [...markdown(type.description), ...fields(api, type)]);
  return details;
}

function fields(api, type) {
  if (!type.properties) return [];
  const required = new Set(type.required);
  const rows = Object.entries(type.properties).flatMap(([key, given]) => {
    const schema = present(given);
    const marks = [required.has(key) && "required", schema.readOnly && "only in answers", schema.deprecated && "deprecated", limit(schema)];
    const { inner } = kind(schema);
    const composed = inner.$ref || inner.properties || inner.oneOf || schema.enum;
    const told = schema.enum ? [] : markdown(schema.description);
    return [
      element("dt", {}, element("code", {}, key), element("small", {}, [name(schema), ...marks.filter(Boolean)].join(", "))),
      element("dd", {}, ...told, ...(composed ? [shownType(api, schema)] : [])),
    ];
  });
  return [element("dl", {}, ...rows)];
}

// The schema of a value that is not null, which in a request is the same as none.
function present(schema) {
  const alternatives = schema.anyOf?.filter(({ type }) => type !== "null");
  return alternatives?.length === 1 ? { ...schema, ...alternatives[0], anyOf: undefined } : schema;
}

// What a list, map or single value consists of.
function kind(schema) {
  if (schema.items) return { prefix: "list of ", inner: schema.items };
  if (schema.additionalProperties instanceof Object) return { prefix: "map to ", inner: schema.additionalProperties };
  return { prefix: "", inner: schema };
}

function name(schema) {
  const { prefix, inner } = kind(schema);
  if (inner.$ref) return prefix + inner.$ref.split("/").at(-1);
  if ("const" in inner) return prefix + JSON.stringify(inner.const);
  return prefix + (inner.contentEncoding ?? inner.format ?? ((inner.enum ? "enum" : [inner.type].flat().filter((type) => type !== "null").join(" or ")) || "any value"));
}

function limit({ maxItems, maxProperties, maxLength, minimum, maximum, format }) {
  const most = maxItems ?? maxProperties ?? maxLength;
  if (most !== undefined) return `at most ${most.toLocaleString("en")} ${maxLength === undefined ? "entries" : "bytes"}`;
  // What every number of 32 or 64 bits is within needs no word.
  if (maximum === undefined || maximum >= 2 ** 31 - 1) return minimum === 0 && format !== "double" ? "0 or more" : "";
  return minimum === undefined ? `at most ${maximum.toLocaleString("en")}` : `${minimum} to ${maximum.toLocaleString("en")}`;
}

function resolved(api, schema) {
  return schema.$ref ? schema.$ref.slice(2).split("/").reduce((part, key) => part[key], api) : schema;
}

function form(path, example) {
  const text = JSON.stringify(example, null, 2);
  const request = element("textarea", { rows: 6, spellcheck: false, "aria-label": "Request" }, text);
  const [send, stop, copy] = [element("button", {}, "Send"), element("button", { hidden: "" }, "Stop"), element("button", {}, "Copy as curl")];
  const answer = element("pre", { role: "status" });
  let ended;
  copy.addEventListener("click", async () => {
    const command = curl(path, request.value);
    try {
      await navigator.clipboard.writeText(command);
      answer.textContent = `copied:\n${command}`;
    } catch {
      // Browsers let only pages of localhost and of HTTPS write to the clipboard.
      answer.textContent = command;
      getSelection().selectAllChildren(answer);
    }
  });
  stop.addEventListener("click", () => ended.abort());
  send.addEventListener("click", async () => {
    ended = new AbortController();
    [send.hidden, stop.hidden] = [true, false];
    try {
      await call(path, request.value, answer, ended.signal);
    } catch (error) {
      answer.append(error.name === "AbortError" ? "\nstopped" : `\n${error.message}`);
    }
    [send.hidden, stop.hidden] = [false, true];
  });
  return [request, element("p", {}, send, stop, copy), answer];
}

// The same call as a command. A credential stays out of it: commands are kept in the shell's history.
function curl(path, body) {
  const credential = document.getElementById("credential").value && '--header "authorization: Bearer $MNEMON_API_KEY" ';
  let text = body;
  try {
    text = JSON.stringify(JSON.parse(body));
  } catch {
    // The server says what is wrong with it.
  }
  return `curl ${credential}--json '${text.replaceAll("'", "'\\''")}' ${new URL(`.${path}`, source)}`;
}

// Shows an answer as it arrives: a stream may not end.
async function call(path, body, answer, signal) {
  const credential = document.getElementById("credential").value;
  const headers = { "content-type": "application/json", ...(credential && { authorization: `Bearer ${credential}` }) };
  const [status, left] = ["", ""].map((text) => document.createTextNode(text));
  answer.replaceChildren(status, left);
  const response = await fetch(new URL(`.${path}`, source), { method: "POST", headers, body, signal });
  status.data = `${response.status} ${response.statusText}\n`;
  let gone = 0;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value = "" } = await reader.read();
    const lines = (rest + value).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines.filter(Boolean)) {
      answer.append(`${shortened(JSON.stringify(JSON.parse(line), null, 2))}\n`);
      if (answer.childNodes.length > MESSAGES_SHOWN + 2) {
        left.nextSibling.remove();
        left.data = `… ${(gone += 1).toLocaleString("en")} earlier messages\n`;
      }
    }
    if (done) return;
  }
}

function shortened(text) {
  const more = text.length - CHARACTERS_SHOWN;
  return more > 0 ? `${text.slice(0, CHARACTERS_SHOWN)}\n… ${more.toLocaleString("en")} more characters` : text;
}

function whenOpened(details, parts) {
  details.addEventListener("toggle", () => details.append(...parts()), { once: true });
}

// Paragraphs, lists, bold words and code, as the document uses them.
function markdown(text = "") {
  return text.split("\n\n").filter(Boolean).map((part) => {
    if (!part.startsWith("- ")) return element("p", {}, ...words(part));
    return element("ul", {}, ...part.split(/^- /m).filter(Boolean).map((item) => element("li", {}, ...words(item))));
  });
}

function words(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return element("code", {}, part.slice(1, -1));
    return part.startsWith("**") ? element("b", {}, part.slice(2, -2)) : part;
  });
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
