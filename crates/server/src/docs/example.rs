//! A value that a schema describes, as short as it may be: what is required, and no more.

use serde_json::{Map, Value, json};

/// How far into a schema that contains itself.
const DEPTH_MAX: u8 = 8;

/// Words that read better than their type, by the name of the field.
const WORDS: &[(&str, &str)] = &[
    ("kind", "resize"),
    ("queue", "images"),
    ("queues", "images"),
    ("name", "nightly"),
    ("step", "charge"),
    ("why", "the card was replaced"),
    ("text", "looked at it"),
    ("url", "https://example.com/hook"),
    ("cursor", "…"),
    ("after", "0"),
];

/// A value of a schema; `name` is that of the field or parameter it is for.
pub(super) fn example(all: &Value, schema: &Value, name: &str) -> Value {
    made(all, schema, name, 0)
}

/// The schema that is meant, where another is named.
pub(super) fn resolved<'a>(all: &'a Value, schema: &'a Value) -> &'a Value {
    let named = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
    named.and_then(|place| all.pointer(place)).unwrap_or(schema)
}

fn made(all: &Value, schema: &Value, name: &str, depth: u8) -> Value {
    let schema = resolved(all, schema);
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    let given = ["example", "const", "default"].into_iter().find_map(|word| schema.get(word));
    if let Some(given) = given.or(schema["enum"].get(0)).filter(|given| !given.is_null()) {
        return given.clone();
    }
    let below = |schema: &Value| made(all, schema, name, depth + 1);
    if let Some(parts) = schema["allOf"].as_array() {
        let parts = parts.iter().map(below).filter_map(|part| part.as_object().cloned());
        return Value::Object(parts.flatten().collect());
    }
    let one = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(one) = one.and_then(|all| all.iter().find(|one| one["type"] != "null")) {
        return below(one);
    }
    match kind(schema) {
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten();
            let fields = required.filter_map(Value::as_str).map(|field| {
                let of = &schema["properties"][field];
                (field.to_owned(), made(all, of, field, depth + 1))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        "array" => json!([below(&schema["items"])]),
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
        "boolean" => json!(true),
        "string" => json!(word(schema, name)),
        _ => Value::Null,
    }
}

/// The type of a schema, besides null.
pub(super) fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("any")
        }
        Value::String(kind) => kind,
        _ => "any",
    }
}

fn word(schema: &Value, name: &str) -> &'static str {
    match schema["format"].as_str() {
        Some("uuid") => "019a8f6e-3c1d-7b2a-9f00-5b1c2d3e4f50",
        Some("date-time") => "2025-01-01T00:00:00Z",
        _ => WORDS.iter().find(|(field, _)| *field == name).map_or("…", |(_, word)| word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_is_required() {
        let all = json!({ "parts": { "Id": { "type": "string", "format": "uuid" } } });
        let schema = json!({ "type": "object", "required": ["kind", "id", "n"], "properties": {
            "kind": { "type": "string" }, "id": { "$ref": "#/parts/Id" }, "not": { "type": "string" },
            "n": { "oneOf": [{ "type": "null" }, { "type": "integer", "minimum": 3 }] },
        } });
        let made = example(&all, &schema, "");
        let id = "019a8f6e-3c1d-7b2a-9f00-5b1c2d3e4f50";
        assert_eq!(made, json!({ "kind": "resize", "id": id, "n": 3 }));
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let all = json!({ "parts": { "Tree": { "type": "array", "items": { "$ref": "#/parts/Tree" } } } });
        assert!(example(&all, &json!({ "$ref": "#/parts/Tree" }), "").is_array());
    }
}
