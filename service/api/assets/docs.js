"use strict";
// Renders openapi.json: every call with its parameters, body and answers. No other resource is loaded.
(async () => {
  const calls = document.getElementById("calls");
  const node = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  let spec;
  try {
    const response = await fetch("openapi.json");
    if (!response.ok) throw new Error(String(response.status));
    spec = await response.json();
  } catch (error) {
    calls.replaceChildren(node("p", "openapi.json could not be loaded: " + error.message));
    return;
  }
  document.getElementById("version").textContent = "version " + spec.info.version;
  const find = (schema) => (schema && schema.$ref ? spec.components.schemas[schema.$ref.split("/").pop()] : schema) || {};
  const typeOf = (schema, depth = 0) => {
    const found = find(schema);
    if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (found.const !== undefined) return JSON.stringify(found.const);
    const several = found.anyOf || found.oneOf;
    if (several) return [...new Set(several.map((each) => typeOf(each, depth)))].join(" | ");
    if (found.type === "array") return typeOf(found.items, depth) + "[]";
    if (schema && schema.$ref && depth > 0) return schema.$ref.split("/").pop();
    return (found.format ? found.format : [].concat(found.type || "any").join(" | "));
  };
  const bounds = (schema) => ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default"]
    .filter((name) => schema[name] !== undefined && schema[name] !== null)
    .map((name) => name + " " + JSON.stringify(schema[name])).join(", ");
  const table = (rows) => {
    const made = node("table");
    for (const [name, type, required, text] of rows) {
      const row = node("tr");
      const first = node("td");
      first.append(node("code", name + (required ? " *" : "")));
      row.append(first, node("td", type), node("td", text, "quiet"));
      made.append(row);
    }
    return made;
  };
  const fields = (schema) => {
    const found = find(schema);
    const several = (found.anyOf || []).map(find).find((each) => each.properties);
    const object = several || found;
    if (object.type === "array") return fields(object.items);
    if (!object.properties) return node("p", typeOf(schema), "quiet");
    const required = new Set(object.required || []);
    return table(Object.entries(object.properties).map(([name, field]) => {
      const inner = (field.anyOf || []).find((each) => each.type !== "null") || field;
      const text = [field.description, bounds({ ...find(inner), ...field })].filter(Boolean).join(" · ");
      return [name, typeOf(field, 1), required.has(name), text];
    }));
  };
  const examples = (body) => {
    const several = body.examples || (body.example === undefined ? {} : { example: { value: body.example } });
    return Object.values(several).flatMap((each) =>
      [node("p", each.summary || "Example", "quiet"), node("pre", JSON.stringify(each.value, null, 2))]);
  };
  const show = (path, method, call) => {
    const made = node("details");
    made.dataset.text = (method + " " + path + " " + call.summary).toLowerCase();
    made.id = call.operationId;
    const summary = node("summary");
    summary.append(node("span", method.toUpperCase(), "method " + method), node("code", path), node("span", call.summary, "quiet"));
    made.append(summary);
    made.addEventListener("toggle", () => {
      if (!made.open || made.children.length > 1) return;
      const content = node("div");
      const link = node("a", "#" + call.operationId);
      link.href = "#" + call.operationId;
      const first = node("p", call.description ? call.description + " " : "");
      first.append(link);
      content.append(first);
      if (call.parameters.length) {
        content.append(node("h3", "Parameters"), table(call.parameters.map((each) =>
          [each.name, each.in + ", " + typeOf(each.schema, 1), each.required,
            [each.description, bounds(each.schema), each.example === undefined ? "" : "example " + JSON.stringify(each.example)]
              .filter(Boolean).join(" · ")])));
      }
      if (call.requestBody) {
        for (const [kind, body] of Object.entries(call.requestBody.content)) {
          content.append(node("h3", "Body: " + kind));
          content.append(fields(body.schema), ...examples(body));
        }
      }
      for (const [status, answer] of Object.entries(call.responses)) {
        content.append(node("h3", status + " " + answer.description));
        const body = answer.content && answer.content["application/json"];
        if (body) content.append(fields(body.schema), ...examples(body));
      }
      made.append(content);
    });
    return made;
  };
  const groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const [method, call] of Object.entries(methods)) {
      const tag = call.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(show(path, method, call));
    }
  }
  const sections = [...groups].map(([tag, entries]) => {
    const section = node("section");
    section.append(node("h2", tag), ...entries);
    return section;
  });
  calls.replaceChildren(...sections);
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const entry of calls.querySelectorAll("details")) entry.hidden = !entry.dataset.text.includes(wanted);
    for (const section of sections) section.hidden = !section.querySelector("details:not([hidden])");
  });
  const openNamed = () => {
    const named = location.hash && document.getElementById(location.hash.slice(1));
    if (!named) return;
    named.setAttribute("open", "");
    named.scrollIntoView();
  };
  addEventListener("hashchange", openNamed);
  openNamed();
})();
