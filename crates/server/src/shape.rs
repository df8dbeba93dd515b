//! The shapes of bodies, by the description of an operation and however deep: a list where it has an object is refused,
//! and so is a field that it does not have.
//!
//! Serde would take the elements of a list for the fields in their order, so that a body which nobody meant would pass.
//! Fields that nobody knows are refused by whoever reads a body; but some types are read from the store as well, where
//! a newer release may have written more, and these take what they do not know. What is described as any JSON
//! (payloads, outputs) is skipped unread. Alternatives count together: a list is refused where one of them is an object
//! and none is a list, a field where none of them has it. It refuses to judge anything else; that is for whoever reads
//! the body.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::extract::of_batch;
use crate::problem::{Answer, Refusal};

/// The shapes of all bodies, by path and method.
pub(crate) struct Shapes {
    shapes: Vec<Shape>,
    bodies: HashMap<String, HashMap<String, usize>>,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Which(usize);

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Lists in the place of objects.
    Lists,
    /// Fields that nobody knows as well.
    Whole,
}

/// What may stand in a place. Others are meant by their number.
#[derive(Debug, Default)]
struct Shape {
    fields: BTreeMap<String, usize>,
    /// Fields of any name.
    others: Option<usize>,
    elements: Option<usize>,
    /// An object may stand here, and no list.
    is_object: bool,
    /// Fields of other names are passed over by whoever reads it.
    is_lax: bool,
    /// There is something to look for, here or somewhere within.
    matters: bool,
}

/// What is wrong with a body.
struct Wrong {
    /// Where; written from the inside out.
    place: String,
    what: String,
}

impl Shapes {
    /// Those that the API describes.
    pub(crate) fn of(description: &Value) -> Self {
        let mut reader = Reader { description, shapes: Vec::new(), known: HashMap::new() };
        let mut bodies: HashMap<String, HashMap<String, usize>> = HashMap::new();
        for (path, operations) in description["paths"].as_object().into_iter().flatten() {
            for (method, operation) in operations.as_object().into_iter().flatten() {
                let body = &operation["requestBody"]["content"]["application/json"]["schema"];
                if !body.is_null() {
                    let shape = reader.shape([body]);
                    bodies.entry(path.clone()).or_default().insert(method.to_uppercase(), shape);
                }
            }
        }
        let Reader { mut shapes, .. } = reader;
        mark(&mut shapes);
        Self { shapes, bodies }
    }

    /// The shape of the body of an operation, if there is something to look for in it.
    pub(crate) fn of_body(&self, method: &str, path: &str) -> Option<Which> {
        let shape = *self.bodies.get(path)?.get(method)?;
        self.shapes[shape].matters.then_some(Which(shape))
    }

    /// Refuses what is looked for, and says where. What is no JSON is let through: who reads it says so.
    pub(crate) fn check(&self, Which(shape): Which, look: Look, body: &[u8]) -> Answer<()> {
        let wrong = RefCell::new(None);
        let walk = Walk { shapes: &self.shapes, shape, look, wrong: &wrong };
        let walked = walk.deserialize(&mut serde_json::Deserializer::from_slice(body));
        let (Err(_), Some(Wrong { place, what })) = (walked, wrong.into_inner()) else {
            return Ok(());
        };
        let place = place.strip_prefix('.').unwrap_or(if place.is_empty() { "." } else { &place });
        let refusal = Refusal::request(format!("the body is not as it should be: {place}: {what}"));
        Err(refusal.of(of_batch(place)))
    }
}

/// Notes in which shapes there is something to look for. They may have themselves within.
fn mark(shapes: &mut [Shape]) {
    loop {
        let within = |shape: &Shape| {
            let mut all = shape.fields.values().chain(&shape.others).chain(&shape.elements);
            shape.is_object || shape.is_lax || all.any(|within| shapes[*within].matters)
        };
        let found: Vec<usize> =
            (0..shapes.len()).filter(|at| !shapes[*at].matters && within(&shapes[*at])).collect();
        if found.is_empty() {
            return;
        }
        for at in found {
            shapes[at].matters = true;
        }
    }
}

/// Makes shapes of schemas.
struct Reader<'a> {
    description: &'a Value,
    shapes: Vec<Shape>,
    /// By where the schemas stand that each is made of.
    known: HashMap<Vec<usize>, usize>,
}

impl<'a> Reader<'a> {
    /// The shape of what goes by one of these schemas, or by all of them.
    fn shape(&mut self, schemas: impl IntoIterator<Item = &'a Value>) -> usize {
        let mut plain = BTreeMap::new();
        schemas.into_iter().for_each(|schema| self.plain(schema, &mut plain));
        let place: Vec<usize> = plain.keys().copied().collect();
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        // Known before it is read: it may have itself within.
        let number = self.shapes.len();
        self.known.insert(place, number);
        self.shapes.push(Shape::default());
        let plain: Vec<&Value> = plain.into_values().collect();
        // Where anything may stand, nothing is looked at.
        if !plain.iter().any(|schema| schema["type"].is_null()) {
            self.shapes[number] = self.read(&plain);
        }
        number
    }

    /// The schemas that one is put together of, and that are not put together themselves.
    fn plain(&self, schema: &'a Value, found: &mut BTreeMap<usize, &'a Value>) {
        if let Some(meant) = schema["$ref"].as_str().and_then(|place| place.strip_prefix('#')) {
            return self.plain(self.description.pointer(meant).unwrap_or(&Value::Null), found);
        }
        let of = ["oneOf", "anyOf", "allOf"].map(|word| schema[word].as_array());
        if of.iter().all(Option::is_none) {
            found.insert(std::ptr::from_ref(schema).addr(), schema);
        }
        of.into_iter().flatten().flatten().for_each(|part| self.plain(part, found));
    }

    fn read(&mut self, schemas: &[&'a Value]) -> Shape {
        let mut fields: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for (name, field) in
            schemas.iter().filter_map(|schema| schema["properties"].as_object()).flatten()
        {
            fields.entry(name).or_default().push(field);
        }
        let others = schemas.iter().map(|schema| &schema["additionalProperties"]);
        let others: Vec<&Value> = others.filter(|schema| schema.is_object()).collect();
        let elements = schemas.iter().flat_map(|schema| {
            let firsts = schema["prefixItems"].as_array().into_iter().flatten();
            firsts.chain(Some(&schema["items"]))
        });
        let elements: Vec<&Value> = elements.filter(|schema| schema.is_object()).collect();
        let one_may_be = |word| schemas.iter().any(|schema| may_be(schema, word));
        // Where other fields are ruled out, whoever reads it refuses them.
        let is_lax = !fields.is_empty()
            && schemas.iter().all(|schema| {
                schema["additionalProperties"].is_null()
                    && (!may_be(schema, "object") || schema["properties"].is_object())
            });
        Shape {
            fields: fields
                .into_iter()
                .map(|(name, all)| (name.to_owned(), self.shape(all)))
                .collect(),
            others: (!others.is_empty()).then(|| self.shape(others)),
            elements: (!elements.is_empty()).then(|| self.shape(elements)),
            is_object: one_may_be("object") && !one_may_be("array"),
            is_lax,
            matters: false,
        }
    }
}

/// Whether a schema allows something of this type.
fn may_be(schema: &Value, word: &str) -> bool {
    match &schema["type"] {
        Value::Array(words) => words.iter().any(|one| one == word),
        one => one == word,
    }
}

/// A look at what stands in a place of a body, with what should.
#[derive(Clone, Copy)]
struct Walk<'a> {
    shapes: &'a [Shape],
    shape: usize,
    look: Look,
    wrong: &'a RefCell<Option<Wrong>>,
}

impl Walk<'_> {
    fn shape(&self) -> &Shape {
        &self.shapes[self.shape]
    }

    /// The same for something within, unless there is nothing to look for.
    fn within(self, shape: Option<usize>) -> Option<Self> {
        shape.filter(|shape| self.shapes[*shape].matters).map(|shape| Self { shape, ..self })
    }

    /// Notes where it was, if that is why it ended.
    fn at<E>(&self, error: E, place: impl fmt::Display) -> E {
        if let Some(within) = self.wrong.borrow_mut().as_mut() {
            within.place.insert_str(0, &place.to_string());
        }
        error
    }

    fn refuse<E: Error>(&self, what: String) -> E {
        let error = E::custom(&what);
        *self.wrong.borrow_mut() = Some(Wrong { place: String::new(), what });
        error
    }
}

/// The name of a field.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<(), A::Error> {
        if self.shape().is_object {
            return Err(self.refuse("it is a list, and should be an object".to_owned()));
        }
        let within = self.within(self.shape().elements);
        for index in 0.. {
            let more = match within {
                Some(within) => all.next_element_seed(within).map(|one| one.is_some()),
                None => all.next_element::<IgnoredAny>().map(|one| one.is_some()),
            };
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(self.at(error, format_args!("[{index}]"))),
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = fields.next_key()? {
            let shape = self.shape();
            if shape.is_lax && self.look == Look::Whole && !shape.fields.contains_key(&*name) {
                let known: Vec<String> =
                    shape.fields.keys().map(|name| format!("`{name}`")).collect();
                let known = known.join(", ");
                return Err(self.refuse(format!("unknown field `{name}`, expected one of {known}")));
            }
            match self.within(shape.fields.get(&*name).copied().or(shape.others)) {
                Some(within) => fields
                    .next_value_seed(within)
                    .map_err(|error| self.at(error, format_args!(".{name}")))?,
                None => fields.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shapes() -> Shapes {
        let schemas = json!({
            "Tree": { "type": "object", "properties": {
                "payload": {},
                "twigs": { "type": "array", "items": { "$ref": "#/components/schemas/Tree" } },
                "leaf": { "oneOf": [{ "$ref": "#/components/schemas/Leaf" }, { "type": "null" }] },
                "leaves": { "type": "object", "additionalProperties": { "$ref": "#/components/schemas/Leaf" } },
                "end": { "oneOf": [
                    { "type": "object", "properties": { "done": { "type": "object" } } },
                    { "type": "object", "properties": { "failed": { "type": "object" } } },
                ] },
                "pair": { "type": ["array", "null"], "prefixItems": [{ "type": "string" }] },
                "root": { "type": "object", "properties": { "deep": { "type": "boolean" } } },
            }, "additionalProperties": false },
            "Leaf": { "oneOf": [
                { "type": "string" },
                { "allOf": [{ "type": "object", "properties": { "hue": { "type": "object" } } }] },
            ] },
        });
        let schema = json!({ "$ref": "#/components/schemas/Tree" });
        let body = json!({ "content": { "application/json": { "schema": schema } } });
        Shapes::of(&json!({
            "paths": { "/trees": { "post": { "requestBody": body } } },
            "components": { "schemas": schemas },
        }))
    }

    #[test]
    fn lists_in_the_place_of_objects_and_unknown_fields_are_refused_and_nothing_else() {
        let shapes = shapes();
        let tree = shapes.of_body("POST", "/trees").unwrap();
        for (body, place) in [
            (json!([]), "."),
            (json!({ "leaf": [] }), "leaf"),
            (json!({ "leaf": { "hue": [1] } }), "leaf.hue"),
            (json!({ "leaves": ["green"] }), "leaves"),
            (json!({ "leaves": { "a": "green", "b c": ["green"] } }), "leaves.b c"),
            (json!({ "twigs": [{}, []] }), "twigs[1]"),
            (
                json!({ "twigs": [{ "twigs": [{ "leaf": null }, { "leaf": [] }] }] }),
                "twigs[0].twigs[1].leaf",
            ),
            (json!({ "end": [] }), "end"),
            (json!({ "end": { "failed": [1, 2] } }), "end.failed"),
        ] {
            let refused = shapes.check(tree, Look::Whole, body.to_string().as_bytes());
            let (_, says) = refused.as_ref().unwrap_err().told();
            assert!(says.contains(&format!(": {place}: it is a list")), "{body}: {says}");
        }
        for (body, says) in [
            (
                json!({ "root": { "depth": 1 } }),
                "root: unknown field `depth`, expected one of `deep`",
            ),
            (
                json!({ "twigs": [{ "end": { "done": {}, "dead": 1 } }] }),
                "twigs[0].end: unknown field `dead`, expected one of `done`, `failed`",
            ),
            (
                json!({ "leaves": { "a": { "hue": { "any": 1 }, "hues": 2 } } }),
                "leaves.a: unknown field `hues`",
            ),
        ] {
            let refused = shapes.check(tree, Look::Whole, body.to_string().as_bytes());
            let (_, said) = refused.as_ref().unwrap_err().told();
            assert!(said.contains(&format!(": {says}")), "{body}: {said}");
            shapes.check(tree, Look::Lists, body.to_string().as_bytes()).unwrap();
        }
        for body in [
            json!({ "payload": [{ "leaf": [] }], "twigs": [], "leaf": "green", "pair": ["a", "b"], "new": [] }),
            json!({ "leaf": { "hue": {} }, "leaves": {}, "end": { "failed": {} }, "twigs": 7, "pair": null }),
            json!({ "leaf": -1, "end": 1.5, "leaves": true }),
        ] {
            let body = body.to_string();
            shapes.check(tree, Look::Whole, body.as_bytes()).unwrap();
            // What cannot be read is told by whoever reads it.
            shapes.check(tree, Look::Whole, &body.as_bytes()[..body.len() - 1]).unwrap();
        }
        assert!(shapes.of_body("PUT", "/trees").is_none());
    }
}
