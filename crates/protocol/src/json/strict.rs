//! The strict reader: for text that a rule, a hook, a pin, an approval or a header depends on.
//!
//! Two programs must not read such text differently. So it refuses what RFC 8259 leaves to each
//! reader: members with one name (section 4), numbers beyond doubles (section 6), lone surrogates
//! (section 8.2), and deep nesting (section 9).

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Json, Kind, SyntaxErrorKind, Value, string};

/// How many levels of nesting the strict reader accepts. Common parsers accept at least this many.
pub const STRICT_NESTING: usize = 100;
/// The number of members of an object that are sorted without an allocation.
const FEW: usize = 8;
/// The most characters of a name in a message.
const SHOWN: usize = 64;

/// The error that two programs could read a text differently, or that one could not read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The place, as a JSON Pointer with shortened names.
    place: String,
    what: Cow<'static, str>,
}

impl std::error::Error for Unreadable {}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, what } = self;
        if place.is_empty() {
            f.write_str(what)
        } else {
            write!(f, "{place}: {what}")
        }
    }
}

impl Unreadable {
    fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            place: String::new(),
            what: what.into(),
        }
    }

    /// The same error of a value that is below `name`.
    fn prefix(self, name: &str) -> Self {
        let name: String = name.chars().take(SHOWN).collect();
        Self {
            place: format!("/{name}{}", self.place),
            ..self
        }
    }
}

impl Json {
    /// Checks that all programs read this value alike.
    ///
    /// # Errors
    ///
    /// If a member is there twice, at any depth, or something cannot be read.
    pub fn read_strictly(&self) -> Result<(), Unreadable> {
        self.read_strictly_within(STRICT_NESTING)
    }

    /// Like [`Json::read_strictly`], with at most `nesting` levels.
    ///
    /// # Errors
    ///
    /// As for [`Json::read_strictly`].
    pub fn read_strictly_within(&self, nesting: usize) -> Result<(), Unreadable> {
        self.strictly(nesting, &mut None)
    }

    /// The value in one form for all texts that mean the same: members by name, the shortest
    /// escapes, no white space. Numbers stay as they are written.
    ///
    /// # Errors
    ///
    /// As for [`Json::read_strictly`].
    pub fn canonical(&self) -> Result<Self, Unreadable> {
        let mut out = Some(Vec::with_capacity(self.bytes().len()));
        self.strictly(STRICT_NESTING, &mut out)?;
        Ok(Self::from_trusted(Bytes::from(out.unwrap_or_default())))
    }

    /// The value with U+FFFD for each lone surrogate, which many programs cannot read.
    #[must_use]
    pub fn without_lone_surrogates(&self) -> Self {
        string::without_lone_surrogates(self.as_text())
            .map_or_else(|| self.clone(), |text| Self::from_trusted(text.into()))
    }

    fn strictly(&self, nesting: usize, out: &mut Option<Vec<u8>>) -> Result<(), Unreadable> {
        if self.1.is_of_parsed_text() {
            return value(self, nesting, out);
        }
        // Received text may have only a validated structure.
        let whole = Self::parse(self.bytes().clone(), nesting)
            .map_err(|error| Unreadable::new(error.to_string()))?;
        value(&whole, nesting, out)
    }
}

/// Reads one value of at most `nesting` levels.
fn value(json: &Json, nesting: usize, out: &mut Option<Vec<u8>>) -> Result<(), Unreadable> {
    let inner = || {
        let too_deep = || Unreadable::new(SyntaxErrorKind::Depth.to_string());
        nesting.checked_sub(1).ok_or_else(too_deep)
    };
    match json.kind() {
        Kind::Object => {
            let inner = inner()?;
            let mut members = SmallVec::<[_; FEW]>::new();
            for member in json.members() {
                let name = json
                    .value_at(member.key)
                    .and_then(Value::as_str)
                    .ok_or_else(|| Unreadable::new("the name of a member is not Unicode"))?;
                members.push((name, member.value));
            }
            members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            let mut neighbours = members.iter().zip(members.iter().skip(1));
            if let Some(((name, _), _)) = neighbours.find(|(one, other)| one.0 == other.0) {
                return Err(Unreadable::new("the member is there twice").prefix(name));
            }
            write(out, b"{");
            for (at, (name, range)) in members.into_iter().enumerate() {
                if let Some(out) = out {
                    out.extend_from_slice(if at == 0 { b"" } else { b"," });
                    string::encode_into(out, &name);
                    out.push(b':');
                }
                value(&json.slice(range), inner, out).map_err(|error| error.prefix(&name))?;
            }
            write(out, b"}");
        }
        Kind::Array => {
            let inner = inner()?;
            write(out, b"[");
            for (at, range) in json.elements().enumerate() {
                write(out, if at == 0 { b"" } else { b"," });
                value(&json.slice(range), inner, out)
                    .map_err(|error| error.prefix(&at.to_string()))?;
            }
            write(out, b"]");
        }
        Kind::String => {
            let text = json
                .as_str()
                .ok_or_else(|| Unreadable::new("the text is not Unicode"))?;
            if let Some(out) = out {
                string::encode_into(out, &text);
            }
        }
        Kind::Number => {
            let is_finite = json.as_text().parse::<f64>().is_ok_and(f64::is_finite);
            if !is_finite {
                return Err(Unreadable::new("the number is too large"));
            }
            write(out, json.bytes());
        }
        Kind::Null | Kind::Bool => write(out, json.bytes()),
    }
    Ok(())
}

fn write(out: &mut Option<Vec<u8>>, text: &[u8]) {
    if let Some(out) = out {
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::validate_structure(Bytes::copy_from_slice(text.as_bytes()), 1024).unwrap()
    }

    #[test]
    fn what_two_programs_read_differently_is_refused_at_any_depth() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        for (bad, place) in [
            (r#"{"a":1,"a":1}"#.to_owned(), "/a: "),
            (r#"{"a":1,"\u0061":2}"#.to_owned(), "/a: "),
            (r#"{"b":[0,{"a":1,"a":1}]}"#.to_owned(), "/b/1/a: "),
            (r#"{"a":1e999}"#.to_owned(), "/a: "),
            (r#"{"a":[-1e400]}"#.to_owned(), "/a/0: "),
            (r#"{"a":"\ud800"}"#.to_owned(), "/a: "),
            (r#"{"a":"\udc00\ud800"}"#.to_owned(), "/a: "),
            (r#"{"\ud800":1}"#.to_owned(), ""),
            (r#"{"a":NaN}"#.to_owned(), ""),
            (r#"{"a":0100}"#.to_owned(), ""),
            (r#"{"a":tru}"#.to_owned(), ""),
            (deep(STRICT_NESTING + 1), ""),
        ] {
            let error = json(&bad).read_strictly().unwrap_err();
            assert!(error.to_string().starts_with(place), "{bad}: {error}");
            assert_eq!(json(&bad).canonical().unwrap_err(), error);
        }
        for good in [
            "7",
            r#"{"a":{"b":1},"b":{"a":1,"A":2},"\ud83d\ude00":1e308}"#,
            &deep(STRICT_NESTING),
        ] {
            json(good).read_strictly().unwrap();
        }
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        let replaced = |text: &str| json(text).without_lone_surrogates().as_text().to_owned();
        for (text, expected) in [
            (r#"{"a":"cut \ud83d"}"#, "{\"a\":\"cut \u{fffd}\"}"),
            (
                r#"["\udc00\ud800","\ud83d\u0041\n"]"#,
                "[\"\u{fffd}\u{fffd}\",\"\u{fffd}\\u0041\\n\"]",
            ),
        ] {
            assert_eq!(replaced(text), expected);
            json(expected).read_strictly().unwrap();
        }
        let whole = r#"{"a":"\ud83d\ude00 \\ud83d \"\\"}"#;
        assert_eq!(replaced(whole), whole);
    }

    #[test]
    fn parsed_text_is_read_as_strictly_as_text_of_validated_structure() {
        let parsed =
            |text: &str| Json::parse(Bytes::copy_from_slice(text.as_bytes()), 1024).unwrap();
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
        for bad in [
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":[0,{"a":1,"a":1}]}"#,
            r#"{"a":1e999}"#,
            r#"{"\ud800":1}"#,
            &deep,
        ] {
            let whole = parsed(&format!(r#"{{"arguments":{bad}}}"#));
            assert!(whole.read_strictly().is_err(), "{bad}");
            let arguments = whole.get("arguments").unwrap();
            assert!(arguments.1.is_of_parsed_text());
            arguments.read_strictly().unwrap_err();
            assert!(arguments.canonical().is_err());
        }
        // An edit can insert text whose structure alone was validated.
        let edited = parsed(r#"{"a":{"b":1}}"#);
        let place = edited.place("a").unwrap();
        let edited = edited.with_indexed(place, &json(r#"{"b":tru}"#));
        edited.read_strictly().unwrap_err();
        edited.get("a").unwrap().read_strictly().unwrap_err();
    }

    #[test]
    fn canonical_form_is_the_same_for_all_texts_with_one_meaning() {
        let canonical = |text: &str| json(text).canonical().unwrap().as_text().to_owned();
        let expected = r#"{"A":[],"a":[1.0,{"b":null}],"z":"é\n"}"#;
        for text in [
            expected,
            r#" { "z":"\u00e9\u000a", "\u0061":[ 1.0 , {"b":null}],"A":[ ]}"#,
        ] {
            assert_eq!(canonical(text), expected);
        }
        let forms = [
            "1",
            "1.0",
            "1e0",
            "0.1",
            "0.1000000000000000055511151231257827",
            "-0",
            "0",
        ];
        for (at, form) in forms.iter().enumerate() {
            assert_eq!(canonical(form), *form);
            assert!(!forms[at + 1..].contains(form));
        }
    }
}
