//! Comparison of a client's message with a recorded one, by value. The order of members does not
//! count, the order of items does, and numbers are compared without loss.

use std::collections::{BTreeMap, HashSet};

use fanlight_protocol::json::{
    ArrayBuilder, Kind, Member, ObjectBuilder, pointer_step, rewrite_object,
};
use fanlight_protocol::{Json, meta};
use fanlight_telemetry::without_trace_context;

/// The maximum number of differences that an error tells.
const TOLD: usize = 50;

/// One place at which two values differ.
struct Difference {
    pointer: String,
    recorded: Option<Json>,
    asked: Option<Json>,
}

/// The differences between two values.
#[derive(Default)]
pub(super) struct Differences(Vec<Difference>);

impl Differences {
    /// Compares two values at `pointer`. The places in `masked` match anything.
    pub(super) fn between(
        pointer: &str,
        recorded: Option<&Json>,
        asked: Option<&Json>,
        masked: &HashSet<String>,
    ) -> Self {
        let mut comparison = Comparison {
            masked,
            pointer: pointer.to_owned(),
            found: Vec::new(),
        };
        comparison.compare(recorded, asked);
        Self(comparison.found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The differences as an array of `{pointer, recorded, asked}`. A value that is missing on one
    /// side has no member there.
    pub(super) fn to_json(&self) -> Json {
        let mut all = ArrayBuilder::default();
        for difference in &self.0 {
            let mut one = ObjectBuilder::new();
            one.string("pointer", &difference.pointer);
            if let Some(value) = &difference.recorded {
                one.member("recorded", value);
            }
            if let Some(value) = &difference.asked {
                one.member("asked", value);
            }
            all.push(&one.finish());
        }
        all.finish()
    }
}

/// The part of `params` that is compared: without trace context, progress token and the other
/// members of `_meta` that belong to one hop.
pub(super) fn lasting_params(params: Option<&Json>) -> Json {
    let Some(params) = params else {
        return Json::empty_object();
    };
    let params = without_trace_context(params).unwrap_or_else(|| params.clone());
    let Some(member) = params.members().find(|it| it.is(&params, "_meta")) else {
        return params;
    };
    let whole = params.slice(member.value.clone());
    if !whole.is_object() {
        return params;
    }
    let is_lasting = |it: &Member| !meta::PER_HOP.iter().any(|name| it.is(&whole, name));
    let lasting = rewrite_object(&whole, is_lasting, b"");
    if lasting.members().next().is_some() {
        params.with(member.value, &lasting)
    } else {
        rewrite_object(&params, |it| !it.is(&params, "_meta"), b"")
    }
}

struct Comparison<'a> {
    masked: &'a HashSet<String>,
    /// The place of the values that are compared.
    pointer: String,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn compare(&mut self, recorded: Option<&Json>, asked: Option<&Json>) {
        if self.found.len() == TOLD || self.masked.contains(&self.pointer) {
            return;
        }
        match recorded.zip(asked) {
            Some((recorded, asked)) if recorded.is_object() && asked.is_object() => {
                self.compare_members(recorded, asked);
            }
            Some((recorded, asked))
                if [recorded, asked].iter().all(|it| it.kind() == Kind::Array) =>
            {
                self.compare_items(recorded, asked);
            }
            Some((recorded, asked)) if is_same_scalar(recorded, asked) => {}
            _ => self.found.push(Difference {
                pointer: self.pointer.clone(),
                recorded: recorded.cloned(),
                asked: asked.cloned(),
            }),
        }
    }

    fn compare_members(&mut self, recorded: &Json, asked: &Json) {
        // A member's values on both sides, by its name.
        let mut all: BTreeMap<String, [Option<Json>; 2]> = BTreeMap::new();
        for (side, object) in [recorded, asked].into_iter().enumerate() {
            for member in object.members() {
                // A name that is no Unicode text stands for itself as written.
                let written = || object.slice(member.key.clone()).as_text().to_owned();
                let name = member.name(object).unwrap_or_else(written);
                if let Some(value) = all.entry(name).or_default().get_mut(side) {
                    *value = Some(object.slice(member.value));
                }
            }
        }
        for (name, [recorded, asked]) in &all {
            self.compare_at(&pointer_step(name), recorded.as_ref(), asked.as_ref());
        }
    }

    fn compare_items(&mut self, recorded: &Json, asked: &Json) {
        let items = |array: &Json| -> Vec<Json> {
            let places = array.elements();
            places.map(|place| array.slice(place)).collect()
        };
        let (recorded, asked) = (items(recorded), items(asked));
        for index in 0..recorded.len().max(asked.len()) {
            self.compare_at(&format!("/{index}"), recorded.get(index), asked.get(index));
        }
    }

    fn compare_at(&mut self, step: &str, recorded: Option<&Json>, asked: Option<&Json>) {
        let length = self.pointer.len();
        self.pointer.push_str(step);
        self.compare(recorded, asked);
        self.pointer.truncate(length);
    }
}

fn is_same_scalar(one: &Json, other: &Json) -> bool {
    match (one.kind(), other.kind()) {
        (Kind::String, Kind::String) => {
            one.as_str().is_some_and(|text| other.is_str(&text)) || one == other
        }
        (Kind::Number, Kind::Number) => {
            one == other
                || decimal(one.as_text())
                    .is_some_and(|value| decimal(other.as_text()) == Some(value))
        }
        _ => one == other,
    }
}

/// The value of a number: its sign, its digits without zeros at the ends, and the power of ten of
/// the last digit. `None` for an exponent that no program computes with.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let power = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + zeros;
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    Some((
        mantissa.len() > unsigned.len(),
        significant.to_owned(),
        power,
    ))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::json::DEFAULT_NESTING;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING).unwrap()
    }

    fn told(recorded: &str, asked: &str, masked: &[&str]) -> String {
        let masked = masked.iter().map(|it| (*it).to_owned()).collect();
        let (recorded, asked) = (json(recorded), json(asked));
        let found = Differences::between("/params", Some(&recorded), Some(&asked), &masked);
        found.to_json().as_text().to_owned()
    }

    #[test]
    fn values_are_compared_and_not_texts() {
        for (one, other) in [
            (
                r#"{"a":1,"b":[1,2]}"#,
                r#"{ "b" : [1, 2], "\u0061" : 1.0 }"#,
            ),
            (r#"["\u0041\n"]"#, r#"["A\u000a"]"#),
            ("[100, 0.5, -0, 1e2]", "[1e2, 5E-1, 0.0, 100.00]"),
            (
                "[123456789012345678901234567890]",
                "[123456789012345678901234567890.0]",
            ),
            (r#"["\ud800"]"#, r#"["\ud800"]"#),
        ] {
            assert_eq!(told(one, other, &[]), "[]", "{one} {other}");
        }
        for (one, other) in [
            ("[9007199254740993]", "[9007199254740992]"),
            ("[1,2]", "[2,1]"),
            ("[1]", r#"["1"]"#),
            ("[null]", "[]"),
            (r#"{"a":null}"#, "{}"),
            ("[1]", "[-1]"),
            ("[1e999999999999]", "[1e999999999998]"),
            (r#"["\ud800"]"#, r#"["\ud801"]"#),
        ] {
            assert_ne!(told(one, other, &[]), "[]", "{one} {other}");
        }
    }

    #[test]
    fn differences_name_their_place_and_both_values() {
        assert_eq!(
            told(
                r#"{"a/b":[1,{"~":true}],"c":1}"#,
                r#"{"a/b":[1,{"~":false},3]}"#,
                &[]
            ),
            r#"[{"pointer":"/params/a~1b/1/~0","recorded":true,"asked":false},{"pointer":"/params/a~1b/2","asked":3},{"pointer":"/params/c","recorded":1}]"#
        );
        let many = format!("[{}0]", "0,".repeat(1000));
        assert_eq!(told(&many, "[]", &[]).matches("pointer").count(), TOLD);
    }

    #[test]
    fn masked_place_matches_anything() {
        let recorded = r#"{"token":"[masked]","n":1}"#;
        for asked in [r#"{"token":{"a":1},"n":1}"#, r#"{"n":1}"#] {
            assert_eq!(told(recorded, asked, &["/params/token"]), "[]");
        }
        assert_ne!(told(recorded, r#"{"n":2}"#, &["/params/token"]), "[]");
    }

    #[test]
    fn members_of_one_hop_are_left_out() {
        let hop = r#"{"name":"t","_meta":{"progressToken":1,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","io.modelcontextprotocol/clientInfo":{}}}"#;
        assert_eq!(
            lasting_params(Some(&json(hop))).as_text(),
            r#"{"name":"t"}"#
        );
        let own = r#"{"_meta":{"progressToken":1,"own":2},"name":"t"}"#;
        assert_eq!(
            lasting_params(Some(&json(own))).as_text(),
            r#"{"_meta":{"own":2},"name":"t"}"#
        );
        assert_eq!(lasting_params(None).as_text(), "{}");
        assert_eq!(
            lasting_params(Some(&json(r#"{"_meta":7}"#))).as_text(),
            r#"{"_meta":7}"#
        );
    }
}
