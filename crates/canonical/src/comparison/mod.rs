//! Compares the definitions and answers of two versions of a server (mirrors, pins, `fanlight
//! replay`, `fanlight diff`), and the requests of a client with recorded ones (`fanlight mock`).
//!
//! Every difference has a JSON Pointer (RFC 6901) and one of twenty kinds ([`Change`]); the kind
//! decides how severe it is. Members are matched by name in any order. The texts may be long and
//! hostile, so the time is proportional to their length, and the number of reported differences is
//! bounded.

mod definitions;
mod schema;

use std::collections::{HashMap, HashSet};
use std::fmt;

use fanlight_protocol::json::{Member, pointer_step, rewrite_object};
use fanlight_protocol::meta::SERVER_INFO;
use fanlight_protocol::{Json, Response};

pub use definitions::{compare_definitions, compare_openings, without_meta};
pub use values::{compare_exactly, find_ids};

/// The current place of a comparison.
struct Path {
    pointer: String,
    /// The pointer with `*` for the numbers of items.
    place: String,
}

impl Path {
    fn from_pointer(pointer: &str) -> Self {
        let (pointer, place) = (pointer.to_owned(), pointer.to_owned());
        Self { pointer, place }
    }

    fn push_member(&mut self, name: &str) {
        let step = pointer_step(name);
        self.pointer += &step;
        self.place += &step;
    }

    fn push_item(&mut self, index: usize) {
        self.pointer += &format!("/{index}");
        self.place += "/*";
    }

    fn lengths(&self) -> (usize, usize) {
        (self.pointer.len(), self.place.len())
    }

    fn truncate(&mut self, (pointer, place): (usize, usize)) {
        self.pointer.truncate(pointer);
        self.place.truncate(place);
    }
}

/// Whether `pointer` is at `place`, in which `*` stands for the number of an item, or below it.
fn is_at(place: &str, pointer: &str) -> bool {
    let mut steps = pointer.split('/');
    place.split('/').all(|wanted| {
        steps.next().is_some_and(|step| {
            let is_number = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            step == wanted || (wanted == "*" && is_number)
        })
    })
}

/// Members that are valid at their own server only, or that differ between versions by intent.
const OWN: [&str; 3] = [
    "/result/nextCursor",
    "/result/requestState",
    "/result/_meta/io.modelcontextprotocol~1serverInfo",
];
/// Members that only one era's results have.
const OF_ERA: [&str; 3] = ["/result/resultType", "/result/ttlMs", "/result/cacheScope"];

/// Compares two answers to the same request.
pub fn compare_answers(was: &Response, is: &Response, tolerance: &Tolerance) -> Vec<Difference> {
    let (before, after) = (was.body(), is.body());
    let mut tolerance = tolerance.clone();
    tolerance.exempt(OWN.map(str::to_owned));
    let has_type = |body: &Json| body.get("resultType").is_some();
    if has_type(&before) != has_type(&after) {
        tolerance.exempt(OF_ERA.map(str::to_owned));
    }
    let start = if is.is_error() { "/error" } else { "/result" };
    let mut comparison = Comparison::new(&tolerance, start);
    match (was.is_error(), is.is_error()) {
        (true, true) => comparison.errors(&before, &after),
        (false, false) => comparison.results(&before, &after),
        _ => comparison.add(Change::OutcomeChanged, Some(&before), Some(&after)),
    }
    comparison.found
}

impl Comparison<'_> {
    fn errors(&mut self, was: &Json, is: &Json) {
        let (before, after) = (was.get("code"), is.get("code"));
        if before == after {
            return self.values(was, is);
        }
        self.at_member("code", |at| {
            at.add(Change::ErrorCodeChanged, before.as_ref(), after.as_ref());
        });
    }

    fn results(&mut self, was: &Json, is: &Json) {
        let is_failed = |body: &Json| body.flag("isError");
        if is_failed(was) == is_failed(is) {
            return self.values(&compared(was), &compared(is));
        }
        // The content of a failure has nothing in common with a result.
        self.at_member("isError", |at| {
            at.add(Change::IsErrorChanged, Some(was), Some(is));
        });
    }
}

/// The compared part of a result: without `isError`, which may be left out for false, and without
/// `_meta` if that has nothing but the server's identity.
fn compared(result: &Json) -> Json {
    let is_empty = result.get("_meta").is_some_and(|meta| {
        meta.is_object() && members(&meta).iter().all(|(name, _)| name == SERVER_INFO)
    });
    let is_left_out =
        |member: &Member| member.is(result, "isError") || (is_empty && member.is(result, "_meta"));
    rewrite_object(result, |member| !is_left_out(member), &[])
}

#[cfg(test)]
mod tests;
mod values;

/// Members that only people and models read.
const TEXTS: [&str; 4] = ["title", "description", "icons", "instructions"];
/// The limit of reported differences of one comparison.
const MOST: usize = 200;

fanlight_protocol::named! {
    /// The severity of a difference, the least severe first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// A value differs, which may be intended.
        Value = "value",
        /// Clients can go on as before, but people should look at it.
        Look = "look",
        /// Clients that worked may fail.
        Breaking = "breaking",
    }
}

macro_rules! changes {
    ($($kind:ident = $name:literal, $severity:ident, $meaning:literal;)*) => {
        /// The kind of a difference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Change {
            $(#[doc = $meaning] $kind),*
        }

        impl Change {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The kind's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }

            /// The severity of differences of this kind.
            pub fn severity(self) -> Severity {
                match self {
                    $(Self::$kind => Severity::$severity),*
                }
            }

            /// The meaning of the kind, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => $meaning),*
                }
            }
        }
    };
}

changes! {
    ItemGone = "item-gone", Breaking, "A tool, prompt, resource, template, capability or protocol version is gone.";
    ArgumentGone = "argument-gone", Breaking, "An argument of a tool or prompt is gone.";
    ArgumentRequired = "argument-required", Breaking, "An argument that was optional or unknown is required.";
    InputNarrowed = "input-narrowed", Breaking, "An argument accepts fewer types or values, or has a new condition.";
    OutputWidened = "output-widened", Breaking, "The output schema promises less: a member is gone or optional, or may have other types or values.";
    MemberGone = "member-gone", Breaking, "A member of a result is gone.";
    TypeChanged = "type-changed", Breaking, "A value has another type, or a content block is of another type.";
    OutcomeChanged = "outcome-changed", Breaking, "An error came for a result, a result for an error, or no answer at all.";
    IsErrorChanged = "is-error-changed", Breaking, "`isError` of a tool's result is another.";
    ErrorCodeChanged = "error-code-changed", Breaking, "An error has another code.";
    ItemAdded = "item-added", Look, "A tool, prompt, resource, template, capability or protocol version is new.";
    ArgumentAdded = "argument-added", Look, "An optional argument is new.";
    InputWidened = "input-widened", Look, "An argument accepts more, or is no longer required.";
    OutputNarrowed = "output-narrowed", Look, "The output schema promises more: a member is new or always there, or has fewer types or values.";
    DescriptionChanged = "description-changed", Look, "A text for people and models is another: description, title, icon, instructions.";
    AnnotationsChanged = "annotations-changed", Look, "An annotation of a tool or resource is another.";
    DefinitionChanged = "definition-changed", Look, "Another part of a definition or of the opening is different.";
    MemberAdded = "member-added", Look, "A member of a result is new.";
    ValueChanged = "value-changed", Value, "A value of a result, or the number of its items, is another.";
    OrderChanged = "order-changed", Value, "The same items have another order.";
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The kind.
    pub change: Change,
    /// The place, as a JSON Pointer.
    pub pointer: String,
    /// The earlier value, if there is one.
    pub was: Option<Json>,
    /// The new value, if there is one.
    pub is: Option<Json>,
    /// The number of further items of the same list with this difference.
    pub more: usize,
    /// The pointer with `*` for the numbers of items.
    place: String,
}

impl Difference {
    /// A line with the values in the form of `shown`.
    pub fn line(&self, shown: impl Fn(&Json) -> String) -> String {
        format!("{self}{}", self.values(shown))
    }

    /// The earlier and the new value in the form of `shown`, after a colon.
    pub fn values(&self, shown: impl Fn(&Json) -> String) -> String {
        match (&self.was, &self.is) {
            (Some(was), Some(is)) => format!(": {} became {}", shown(was), shown(is)),
            (Some(was), None) => format!(": {} is gone", shown(was)),
            (None, Some(is)) => format!(": {} is new", shown(is)),
            (None, None) => String::new(),
        }
    }
}

impl fmt::Display for Difference {
    /// Severity, kind and place, without values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (severity, name) = (self.change.severity().as_str(), self.change.name());
        write!(f, "{severity} {name} {}", self.pointer)?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

/// The differences that a comparison does not report.
#[derive(Clone, Debug, Default)]
pub struct Tolerance {
    exempt: Vec<String>,
    varying: HashSet<(String, Change)>,
}

impl FromIterator<String> for Tolerance {
    /// Reports nothing at these JSON Pointers and below.
    fn from_iter<I: IntoIterator<Item = String>>(pointers: I) -> Self {
        let mut tolerance = Self::default();
        tolerance.exempt(pointers);
        tolerance
    }
}

impl Tolerance {
    /// Reports nothing at these JSON Pointers and below. `*` stands for the number of any item.
    pub fn exempt(&mut self, pointers: impl IntoIterator<Item = String>) {
        self.exempt.extend(pointers);
    }

    /// Reports no difference that was already found between two equal requests to one server.
    pub fn learn(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for Difference { change, place, .. } in differences {
            let other = match change {
                Change::MemberGone => Change::MemberAdded,
                Change::MemberAdded => Change::MemberGone,
                Change::ItemGone => Change::ItemAdded,
                Change::ItemAdded => Change::ItemGone,
                same => same,
            };
            self.varying.insert((place.clone(), other));
            self.varying.insert((place, change));
        }
    }

    fn is_exempt(&self, pointer: &str) -> bool {
        self.exempt.iter().any(|exempt| is_at(exempt, pointer))
    }

    fn knows(&self, place: &str, change: Change) -> bool {
        // The pair is only built for the few places of a server that varies.
        !self.varying.is_empty() && self.varying.contains(&(place.to_owned(), change))
    }
}

/// A running comparison.
struct Comparison<'a> {
    tolerance: &'a Tolerance,
    /// Whether the comparison is exact: items are compared by their places, and no form of a value
    /// is tolerated.
    is_exact: bool,
    path: Path,
    found: Vec<Difference>,
    /// The positions of differences by place and kind.
    known: HashMap<(String, Change), usize>,
}

impl<'a> Comparison<'a> {
    fn new(tolerance: &'a Tolerance, start: &str) -> Self {
        Self {
            tolerance,
            is_exact: false,
            path: Path::from_pointer(start),
            found: Vec::new(),
            known: HashMap::new(),
        }
    }

    fn is_exempt(&self) -> bool {
        self.tolerance.is_exempt(&self.path.pointer)
    }

    /// Adds a difference at the current place, unless it is tolerated.
    fn add(&mut self, change: Change, was: Option<&Json>, is: Option<&Json>) {
        let Path { pointer, place } = &self.path;
        if self.is_exempt() || self.tolerance.knows(place, change) {
            return;
        }
        let key = (place.clone(), change);
        if let Some(known) = self.known.get(&key).and_then(|at| self.found.get_mut(*at)) {
            // Another finding about the same place is no further item.
            known.more += usize::from(known.pointer != *pointer);
        } else if self.found.len() < MOST {
            let (was, is) = (was.cloned(), is.cloned());
            self.found.push(Difference {
                change,
                pointer: pointer.clone(),
                was,
                is,
                more: 0,
                place: place.clone(),
            });
            self.known.insert(key, self.found.len() - 1);
        }
    }

    /// Adds a difference at another place.
    fn add_at(&mut self, pointer: &str, change: Change, was: Option<&Json>, is: Option<&Json>) {
        let before = std::mem::replace(&mut self.path, Path::from_pointer(pointer));
        self.add(change, was, is);
        self.path = before;
    }

    /// Goes to a member while `work` runs.
    fn at_member(&mut self, name: &str, work: impl FnOnce(&mut Self)) {
        let before = self.path.lengths();
        self.path.push_member(name);
        work(self);
        self.path.truncate(before);
    }

    /// Goes to an item while `work` runs.
    fn at_item(&mut self, index: usize, work: impl FnOnce(&mut Self)) {
        let before = self.path.lengths();
        self.path.push_item(index);
        work(self);
        self.path.truncate(before);
    }
}

/// The members of an object by name, in order. If a name occurs twice, its first member counts.
fn members(object: &Json) -> Vec<(String, Json)> {
    let mut names = HashSet::new();
    let all = object.members().filter_map(|member| {
        // A name that is not Unicode is its raw text.
        let name = member.name(object);
        let name = name.unwrap_or_else(|| object.slice(member.key).as_text().to_owned());
        let is_first = names.insert(name.clone());
        is_first.then(|| (name, object.slice(member.value)))
    });
    all.collect()
}

/// The elements of an array.
fn elements(array: &Json) -> Vec<Json> {
    let all = array.items();
    all.collect()
}

/// The kind of a difference of a definition's member.
fn change_of(member: &str) -> Change {
    if TEXTS.contains(&member) {
        Change::DescriptionChanged
    } else {
        Change::DefinitionChanged
    }
}
