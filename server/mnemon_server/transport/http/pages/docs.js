// Shows openapi.json: services, methods with their fields, and a form that makes a call.

const source = new URL("openapi.json", document.baseURI);
const content = document.getElementById("content");

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
  const links = api.tags.map(({ name }) => element("li", {}, element("a", { href: `#${name}` }, name)));
  document.getElementById("services").replaceChildren(...links);
  content.replaceChildren(...markdown(api.info.description), element("p", {}, `Version ${api.info.version}`), ...sections);
  document.getElementById("find").addEventListener("input", ({ target }) => find(target.value));
  addEventListener("hashchange", open);
  open();
}

// Hides the methods whose name and description lack a word.
function find(text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const section of content.querySelectorAll("section")) {
    const methods = [...section.querySelectorAll(":scope > details")];
    for (const each of methods) each.hidden = !words.every((word) => each.dataset.text.includes(word));
    section.hidden = text !== "" && methods.every((each) => each.hidden);
  }
}

function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
  target?.scrollIntoView();
}

function shownMethod(api, method) {
  const { path, summary, description, deprecated, operationId } = method;
  const sentence = description.split(/(?<=\.)\s/)[0];
  const details = element("details", { id: operationId },
    element("summary", {}, element("b", {}, summary), element("span", {}, sentence), deprecated ? " (deprecated)" : ""));
  details.dataset.text = `${path} ${description}`.toLowerCase();
  whenOpened(details, () => {
    const { schema, example } = method.requestBody.content["application/json"];
    const answers = Object.entries(method.responses["200"].content);
    return [
      ...markdown(description),
      element("p", {}, element("code", {}, `POST ${path}`)),
      element("h3", {}, "Request"), shownType(api, schema),
      element("h3", {}, "Answer"),
      ...answers.flatMap(([type, each]) => [element("p", {}, element("code", {}, type)), shownType(api, each.schema)]),
      element("h3", {}, "Errors"),
      ...["4XX", "5XX"].flatMap((range) => markdown(resolved(api, method.responses[range]).description)),
      shownType(api, { $ref: "#/components/schemas/Error" }),
      element("h3", {}, "Call"), ...form(path, example ?? {}),
    ];
  });
  return details;
}

// What a value is, and its fields, which are made once they are looked at.
function shownType(api, schema) {
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
  const rows = Object.entries(type.properties).flatMap(([key, schema]) => {
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
  return prefix + (inner.contentEncoding ?? inner.format ?? (inner.enum ? "enum" : inner.type) ?? "any value");
}

function limit({ maxItems, maxProperties }) {
  const most = maxItems ?? maxProperties;
  return most === undefined ? "" : `at most ${most.toLocaleString("en")} entries`;
}

function resolved(api, schema) {
  return schema.$ref ? schema.$ref.slice(2).split("/").reduce((part, key) => part[key], api) : schema;
}

function form(path, example) {
  const text = JSON.stringify(example, null, 2);
  const request = element("textarea", { rows: 6, spellcheck: false, "aria-label": "Request" }, text);
  const [send, stop, answer] = [element("button", {}, "Send"), element("button", { hidden: "" }, "Stop"), element("pre", { role: "status" })];
  let ended;
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
  return [request, element("p", {}, send, stop), answer];
}

// Shows an answer as it arrives: a stream may not end.
async function call(path, body, answer, signal) {
  const credential = document.getElementById("credential").value;
  const headers = { "content-type": "application/json", ...(credential && { authorization: `Bearer ${credential}` }) };
  answer.textContent = "";
  const response = await fetch(new URL(`.${path}`, source), { method: "POST", headers, body, signal });
  answer.append(`${response.status} ${response.statusText}\n`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value = "" } = await reader.read();
    const lines = (rest + value).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines.filter(Boolean)) answer.append(`${JSON.stringify(JSON.parse(line), null, 2)}\n`);
    if (done) return;
  }
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
