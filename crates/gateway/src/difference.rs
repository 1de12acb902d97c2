//! The differences of two JSON texts, as values and as bytes.
//!
//! The texts may be long and hostile, so the time is proportional to their length, and the number
//! of reported differences is bounded.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, Member};
use fanlight_protocol::visible::plain;

/// The limit of listed differences; further ones are only counted.
const MOST_LISTED: usize = 50;
/// Bytes shown around the first difference.
const CONTEXT: usize = 40;
/// The limit of characters shown of a value.
const SHOWN: usize = 80;

/// The differences of two values.
#[derive(Debug, Default)]
pub struct Differences {
    /// The first differences.
    pub listed: Vec<Difference>,
    /// The number of further differences.
    pub more: usize,
}

/// A difference of two values.
#[derive(Debug)]
pub struct Difference {
    path: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Became(Json, Json),
    Missing(Json),
    Added(Json),
    Length(usize, usize),
}

/// A step into a value.
enum Step {
    /// The text of a name.
    Member(Json),
    Element(usize),
}

/// The key by which members of two objects are matched: the name, or its raw text if it is not
/// valid.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Name(Box<str>),
    Raw(Box<str>),
}

/// Compares two values. Members are matched by name in any order. Numbers are compared by their
/// text, since `1` and `1.0` differ on the wire.
pub fn of_values(left: &Json, right: &Json) -> Differences {
    let mut found = Differences::default();
    compare(&mut Vec::new(), left, right, &mut found);
    found
}

impl Differences {
    /// Whether the values are equal.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// A line for each difference.
    pub fn lines(&self) -> Vec<String> {
        self.lines_with(Difference::to_string)
    }

    /// A line for each difference, without the values.
    pub fn lines_without_values(&self) -> Vec<String> {
        self.lines_with(|difference| format!("{}: {}", difference.path, difference.kind()))
    }

    /// The kinds of differences in order, without repetition.
    pub fn kinds(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for kind in self.listed.iter().map(Difference::kind) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    fn lines_with(&self, line: impl Fn(&Difference) -> String) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("… and {} more", self.more));
        self.listed.iter().map(line).chain(more).collect()
    }

    fn add(&mut self, path: &[Step], what: What) {
        if self.listed.len() < MOST_LISTED {
            let steps = path.iter().map(|step| match step {
                Step::Member(name) => format!("[{}]", plain(name.as_text(), SHOWN)),
                Step::Element(index) => format!("[{index}]"),
            });
            self.listed.push(Difference {
                path: std::iter::once("$".to_owned()).chain(steps).collect(),
                what,
            });
        } else {
            self.more += 1;
        }
    }
}

impl Difference {
    /// The kind of the difference, in one word.
    fn kind(&self) -> &'static str {
        match self.what {
            What::Became(..) => "value",
            What::Missing(_) => "missing",
            What::Added(_) => "added",
            What::Length(..) => "length",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |json: &Json| plain(json.as_text(), SHOWN);
        write!(f, "{}: ", self.path)?;
        match &self.what {
            What::Became(left, right) => write!(f, "{} became {}", shown(left), shown(right)),
            What::Missing(left) => write!(f, "{} is missing", shown(left)),
            What::Added(right) => write!(f, "{} was added", shown(right)),
            What::Length(left, right) => write!(f, "{left} elements became {right}"),
        }
    }
}

fn compare(path: &mut Vec<Step>, left: &Json, right: &Json, found: &mut Differences) {
    match (left.kind(), right.kind()) {
        _ if left == right => {}
        (Kind::Object, Kind::Object) => compare_members(path, left, right, found),
        (Kind::Array, Kind::Array) => compare_elements(path, left, right, found),
        (Kind::String, Kind::String)
            if left.as_str().is_some() && left.as_str() == right.as_str() => {}
        _ => found.add(path, What::Became(left.clone(), right.clone())),
    }
}

fn compare_members(path: &mut Vec<Step>, left: &Json, right: &Json, found: &mut Differences) {
    // If a name occurs twice, its first member counts.
    let mut others: HashMap<Key, Range<usize>> = HashMap::new();
    for member in right.members() {
        others.entry(key(right, &member)).or_insert(member.value);
    }
    let mut names = std::collections::HashSet::new();
    for member in left.members() {
        let (key, value) = (key(left, &member), left.slice(member.value.clone()));
        path.push(Step::Member(left.slice(member.key)));
        match others.get(&key) {
            Some(other) => compare(path, &value, &right.slice(other.clone()), found),
            None => found.add(path, What::Missing(value)),
        }
        path.pop();
        names.insert(key);
    }
    for member in right.members() {
        if !names.contains(&key(right, &member)) {
            path.push(Step::Member(right.slice(member.key)));
            found.add(path, What::Added(right.slice(member.value)));
            path.pop();
        }
    }
}

fn key(object: &Json, member: &Member) -> Key {
    match member.name(object) {
        Some(name) => Key::Name(name.into()),
        None => Key::Raw(object.slice(member.key.clone()).as_text().into()),
    }
}

fn compare_elements(path: &mut Vec<Step>, left: &Json, right: &Json, found: &mut Differences) {
    let (lefts, rights) = (
        left.elements().collect::<Vec<_>>(),
        right.elements().collect::<Vec<_>>(),
    );
    if lefts.len() != rights.len() {
        found.add(path, What::Length(lefts.len(), rights.len()));
    }
    for (index, (l, r)) in lefts.into_iter().zip(rights).enumerate() {
        path.push(Step::Element(index));
        compare(path, &left.slice(l), &right.slice(r), found);
        path.pop();
    }
}

/// The first differing byte with its context; `None` if the texts are equal.
pub fn of_bytes(left: &Json, right: &Json) -> Option<String> {
    let (l, r) = (left.bytes(), right.bytes());
    if l == r {
        return None;
    }
    let at = l.iter().zip(r.iter()).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| {
        let start = at.saturating_sub(CONTEXT / 2);
        let end = (at + CONTEXT).min(bytes.len());
        bytes
            .get(start..end)
            .unwrap_or_default()
            .escape_ascii()
            .to_string()
    };
    Some(format!(
        "first difference at byte {at} ({} bytes directly, {} through the gateway)\n  direct:  …{}\n  gateway: …{}",
        l.len(),
        r.len(),
        around(l),
        around(r)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(left: &'static str, right: &'static str) -> Vec<String> {
        of_values(&Json::literal(left), &Json::literal(right)).lines()
    }

    #[test]
    fn of_values_lists_every_difference() {
        let left = r#"{"a":1.0,"b":[1,{"c":null}],"gone":true,"s":"\u0041"}"#;
        let right = r#"{"s":"A","b":[1,{"c":0},2],"a":1,"new":{}}"#;
        let expected = [
            r#"$["a"]: 1.0 became 1"#,
            r#"$["b"]: 2 elements became 3"#,
            r#"$["b"][1]["c"]: null became 0"#,
            r#"$["gone"]: true is missing"#,
            r#"$["new"]: {} was added"#,
        ];
        assert_eq!(values(left, right), expected);
        assert!(values(left, left).is_empty());
    }

    #[test]
    fn values_can_be_left_out() {
        let found = of_values(
            &Json::literal(r#"{"a":"secret","b":1,"c":[2]}"#),
            &Json::literal(r#"{"a":"s3cret","c":[]}"#),
        );
        assert_eq!(
            found.lines_without_values(),
            [
                r#"$["a"]: value"#,
                r#"$["b"]: missing"#,
                r#"$["c"]: length"#
            ]
        );
        assert_eq!(found.kinds(), ["value", "missing", "length"]);
    }

    #[test]
    fn very_many_differences_are_found_in_proportion_to_their_number() {
        let object = |first: usize| {
            let members = (first..first + 50_000)
                .map(|at| format!(r#""k{at}":{at}"#))
                .collect::<Vec<_>>();
            Json::parse(format!("{{{}}}", members.join(",")).into(), 8).unwrap()
        };
        let found = of_values(&object(0), &object(50_000));
        assert_eq!(
            (found.listed.len(), found.more),
            (MOST_LISTED, 100_000 - MOST_LISTED)
        );
        assert_eq!(found.lines().last().unwrap(), "… and 99950 more");
    }

    #[test]
    fn of_bytes_finds_white_space_that_values_ignore() {
        let (left, right) = (Json::literal(r#"{"a":1}"#), Json::literal(r#"{"a": 1}"#));
        assert!(of_values(&left, &right).is_empty());
        assert!(
            of_bytes(&left, &right)
                .unwrap()
                .starts_with("first difference at byte 5 (7 bytes directly, 8")
        );
        assert_eq!(of_bytes(&left, &left), None);
    }
}
