//! The page as HTML: operations by tag, each with its parameters, body, a line to copy, and answers; then all errors.

use std::fmt::Write;

use serde_json::Value;

use super::example::{example, kind, resolved};

const ERRORS: &str = include_str!("errors.md");
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// An operation and where it is.
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    of: &'a Value,
}

/// The whole page; `is_closed`: callers show a token.
pub(super) fn page(all: &Value, is_closed: bool) -> String {
    let (mut menu, mut body) = (String::new(), String::new());
    for tag in all["tags"].as_array().into_iter().flatten() {
        let (name, says) = (text(&tag["name"]), text(&tag["description"]));
        let operations: Vec<_> = operations(all).filter(|one| one.of["tags"][0] == name).collect();
        if operations.is_empty() {
            continue;
        }
        let _ = write!(menu, "<li><a href=\"#{name}\">{name}</a>");
        let _ = write!(body, "<section id=\"{name}\"><h2>{name}</h2><p>{}</p>", prose(says));
        for one in &operations {
            operation(&mut body, all, one, is_closed);
        }
        body.push_str("</section>");
    }
    let (title, version) = (text(&all["info"]["title"]), text(&all["info"]["version"]));
    let (says, errors) = (prose(text(&all["info"]["description"])), errors());
    let token = if is_closed {
        "<p>Show who you are: put a token that <code>tidemill token create</code> made into \
         <code>TIDEMILL_TOKEN</code>, and the lines below work as they stand.</p>"
    } else {
        "<p>This server asks nobody who they are: the lines below work as they stand.</p>"
    };
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title} API</title>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"stylesheet\" href=\"/docs/page.css\">\
         <script src=\"/docs/page.js\" defer></script></head><body>\
         <a class=\"skip\" href=\"#main\">To the operations</a>\
         <header><h1>{title} <small>{version}</small></h1><input id=\"search\" type=\"search\" hidden \
         placeholder=\"Search ( / )\" aria-label=\"Search operations and errors\">\
         <button id=\"theme\" type=\"button\" hidden>Light or dark</button></header>\
         <nav aria-label=\"Parts\"><ul>{menu}<li><a href=\"#errors\">errors</a></ul></nav>\
         <main id=\"main\"><p>{says} The same for programs: <a href=\"/openapi.json\">openapi.json</a>.</p>{token}\
         <p id=\"none\" role=\"status\" hidden>Nothing is called that.</p>{body}{errors}</main></body></html>\n"
    )
}

fn operations(all: &Value) -> impl Iterator<Item = Operation<'_>> {
    let paths = all["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let of =
            move |method: &&'static str| item.get(*method).map(|of| Operation { method, path, of });
        METHODS.iter().filter_map(of)
    })
}

fn operation(page: &mut String, all: &Value, one: &Operation<'_>, is_closed: bool) {
    let Operation { method, path, of } = one;
    let (id, summary) = (text(&of["operationId"]), prose(text(&of["summary"])));
    let _ = write!(
        page,
        "<details id=\"{id}\"><summary><b class=\"{method}\">{}</b> <code>{}</code> <span>{summary}</span></summary>\
         <div>",
        method.to_uppercase(),
        path.replace('{', "<i>{").replace('}', "}</i>"),
    );
    for part in text(&of["description"]).split("\n\n").filter(|part| !part.is_empty()) {
        let _ = write!(page, "<p>{}</p>", prose(part));
    }
    curl(page, all, one, is_closed);
    parameters(page, all, of);
    if let Some(schema) = body_of(of) {
        let _ = write!(page, "<h4>Body</h4>");
        fields(page, all, schema);
    }
    answers(page, all, of);
    let _ = write!(page, "<p><a href=\"#{id}\">Link to this</a></p></div></details>");
}

fn body_of(of: &Value) -> Option<&Value> {
    of.pointer("/requestBody/content/application~1json/schema")
}

/// A line that can be copied.
fn curl(page: &mut String, all: &Value, one: &Operation<'_>, is_closed: bool) {
    let Operation { method, path, of } = one;
    let mut at = (*path).to_owned();
    let mut query = Vec::new();
    for parameter in of["parameters"].as_array().into_iter().flatten() {
        let name = text(&parameter["name"]);
        let value = match example(all, &parameter["schema"], name) {
            Value::String(word) => word,
            other => other.to_string(),
        };
        match text(&parameter["in"]) {
            "path" => at = at.replace(&format!("{{{name}}}"), &value),
            "query" if parameter["required"] == true => query.push(format!("{name}={value}")),
            _ => {}
        }
    }
    if !query.is_empty() {
        let _ = write!(at, "?{}", query.join("&"));
    }
    let mut line = String::from("curl -s");
    if *method != "get" && (*method != "post" || body_of(of).is_none()) {
        let _ = write!(line, " -X {}", method.to_uppercase());
    }
    let _ = write!(line, " '<span class=\"origin\">http://localhost:8384</span>{}'", escape(&at));
    if is_closed && of.get("security").is_some() {
        line.push_str(" \\\n  -H \"authorization: Bearer $TIDEMILL_TOKEN\"");
    }
    if let Some(schema) = body_of(of) {
        let given = of.pointer("/requestBody/content/application~1json/example");
        let body = given.cloned().unwrap_or_else(|| example(all, schema, ""));
        let body = body.to_string().replace('\'', r"'\''");
        let _ =
            write!(line, " \\\n  -H 'content-type: application/json' \\\n  -d '{}'", escape(&body));
    }
    let _ = write!(page, "<pre tabindex=\"0\"><code>{line}</code></pre>");
}

fn parameters(page: &mut String, all: &Value, of: &Value) {
    let Some(parameters) = of["parameters"].as_array().filter(|all| !all.is_empty()) else {
        return;
    };
    page.push_str("<h4>Parameters</h4><dl>");
    for one in parameters {
        let place = text(&one["in"]);
        let place =
            if one["required"] == true { place.to_owned() } else { format!("{place}, optional") };
        let says = text(&one["description"]);
        field(page, text(&one["name"]), &place, &shape(all, &one["schema"]), says);
    }
    page.push_str("</dl>");
}

/// The fields of a body, one level deep; what is deeper is named.
fn fields(page: &mut String, all: &Value, schema: &Value) {
    let schema = resolved(all, schema);
    let parts = schema["allOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(parts) = parts {
        for part in parts {
            fields(page, all, part);
        }
        return;
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    page.push_str("<dl>");
    let is_required =
        |name: &str| schema["required"].as_array().into_iter().flatten().any(|one| one == name);
    let (first, then): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| is_required(name));
    for (name, of) in first.into_iter().chain(then) {
        let required = is_required(name);
        // A description stands beside what is meant, or in it.
        let inner =
            of["oneOf"].as_array().into_iter().flatten().map(|one| text(&one["description"]));
        let mut says = std::iter::once(text(&of["description"])).chain(inner);
        let says = says.find(|says| !says.is_empty()).unwrap_or_default();
        field(page, name, if required { "" } else { "optional" }, &shape(all, of), says);
    }
    page.push_str("</dl>");
}

fn field(page: &mut String, name: &str, place: &str, shape: &str, says: &str) {
    let place = if place.is_empty() { String::new() } else { format!(" · {place}") };
    let _ = write!(
        page,
        "<dt><code>{}</code> <small>{}{place}</small></dt><dd>{}</dd>",
        escape(name),
        escape(shape),
        prose(says)
    );
}

/// What a value looks like, in a few words.
fn shape(all: &Value, schema: &Value) -> String {
    let schema = resolved(all, schema);
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(text).collect::<Vec<_>>().join(" | ");
    }
    let one = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(one) = one.and_then(|all| all.iter().find(|one| one["type"] != "null")) {
        return shape(all, one);
    }
    match (kind(schema), schema["format"].as_str(), schema["example"].as_str()) {
        ("array", ..) => format!("list of {}", shape(all, &schema["items"])),
        ("string", Some(format), _) => format.to_owned(),
        ("string", None, Some(example)) => format!("string such as {example}"),
        (kind, ..) => kind.to_owned(),
    }
}

fn answers(page: &mut String, all: &Value, of: &Value) {
    page.push_str("<h4>Answers</h4><dl class=\"answers\">");
    for (status, answer) in of["responses"].as_object().into_iter().flatten() {
        let content = answer["content"].as_object().into_iter().flatten().next();
        let (kind, schema) =
            content.map_or(("", &Value::Null), |(kind, of)| (kind.as_str(), &of["schema"]));
        let says = prose(text(&answer["description"]));
        let class = if status.starts_with('2') { "good" } else { "bad" };
        let _ = write!(
            page,
            "<dt class=\"{class}\"><code>{status}</code> <small>{}</small></dt>",
            escape(kind)
        );
        if kind == "application/problem+json" {
            let _ = write!(page, "<dd>{says} · <a href=\"#errors\">which code means what</a></dd>");
        } else if kind == "application/json" {
            let sample =
                serde_json::to_string_pretty(&example(all, schema, "")).unwrap_or_default();
            let _ = write!(
                page,
                "<dd>{says}<pre tabindex=\"0\"><code>{}</code></pre></dd>",
                escape(&sample)
            );
        } else {
            let _ = write!(page, "<dd>{says}</dd>");
        }
    }
    page.push_str("</dl>");
}

/// All codes and what they mean, from the pages about them.
fn errors() -> String {
    let mut page = String::from(
        "<section id=\"errors\"><h2>errors</h2><p>Each refusal is a problem document whose <code>code</code> never \
         changes its meaning.</p><dl>",
    );
    for row in ERRORS.lines() {
        let Some((code, rest)) = row.strip_prefix("| [").and_then(|row| row.split_once(']')) else {
            continue;
        };
        let Some((_, says)) = rest.split_once(" | ") else { continue };
        let says = prose(says.trim_end_matches('|').trim());
        let _ = write!(
            page,
            "<div id=\"error-{code}\"><dt><code>{code}</code></dt><dd>{says}</dd></div>"
        );
    }
    page.push_str("</dl></section>");
    page
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A sentence, with what stands in backticks as code.
fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts
        .map(
            |(at, part)| if at % 2 == 0 { part.to_owned() } else { format!("<code>{part}</code>") },
        )
        .collect()
}
