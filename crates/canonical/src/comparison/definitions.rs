//! The differences of definitions, and of servers' opening results.

use std::collections::HashMap;

use fanlight_protocol::{Era, Json, Revision, ServerDescription};

use super::schema::{INPUT, OUTPUT, compare_schemas};
use super::{Change, Comparison, Difference, Path, Tolerance, change_of, elements, members};

const EXTENSIONS: &str = "/capabilities/extensions";
/// The capabilities for tasks of both eras, which a gateway translates.
const TASKS: [&str; 2] = [
    "/capabilities/tasks",
    "/capabilities/extensions/io.modelcontextprotocol~1tasks",
];

/// Compares two definitions of a tool, prompt, resource or template, or two instructions. `None`
/// stands for a missing one.
pub fn compare_definitions(
    was: Option<&Json>,
    is: Option<&Json>,
    tolerance: &Tolerance,
) -> Vec<Difference> {
    let mut comparison = Comparison::new(tolerance, "");
    match (was, is) {
        (Some(was), Some(is)) if was.is_object() => comparison.definitions(was, is),
        (Some(_), Some(_)) => comparison.parts(Change::DescriptionChanged, was, is),
        (Some(_), None) => comparison.add(Change::ItemGone, was, is),
        (None, _) => comparison.add(Change::ItemAdded, was, is),
    }
    comparison.found
}

/// Compares two results of `initialize` or `server/discover`.
pub fn compare_openings(was: &Json, is: &Json, tolerance: &Tolerance) -> Vec<Difference> {
    let mut tolerance = tolerance.clone();
    let is_legacy = |opening: &Json| opening.get("protocolVersion").is_some();
    if is_legacy(was) != is_legacy(is) {
        tolerance.exempt(TASKS.map(str::to_owned));
    }
    let mut comparison = Comparison::new(&tolerance, "");
    comparison.each_member(was, is, |at, name, was, is| match name {
        "capabilities" => at.capabilities(was, is),
        "instructions" => at.parts(Change::DescriptionChanged, was, is),
        "supportedVersions" => at.versions(was, is),
        "protocolVersion" if was.is_some() && is.is_some() => {
            at.parts(Change::DefinitionChanged, was, is);
        }
        _ => {}
    });
    // A modern opening has it in `_meta`, or not at all.
    let info = |opening: &Json| ServerDescription::from(opening.clone()).server_info();
    if let Some((known, info)) = info(was).zip(info(is)) {
        comparison.path = Path::from_pointer(match was.get("serverInfo") {
            Some(_) => "/serverInfo",
            None => "/_meta/io.modelcontextprotocol~1serverInfo",
        });
        comparison.each_member(&known, &info, |at, name, was, is| {
            if name != "version" {
                at.parts(Change::DescriptionChanged, was, is);
            }
        });
    }
    comparison.found
}

/// An object without `_meta`.
pub fn without_meta(object: &Json) -> Json {
    object.without_members(&["_meta"])
}

impl Comparison<'_> {
    fn definitions(&mut self, was: &Json, is: &Json) {
        self.each_member(was, is, |at, name, was, is| match (name, was, is) {
            ("inputSchema", Some(was), Some(is)) => compare_schemas(at, was, is, &INPUT),
            ("outputSchema", Some(was), Some(is)) => compare_schemas(at, was, is, &OUTPUT),
            ("outputSchema", Some(_), None) => at.add(Change::OutputWidened, was, is),
            ("outputSchema", None, _) => at.add(Change::OutputNarrowed, was, is),
            ("arguments", ..) => at.prompt_arguments(was, is),
            ("annotations", ..) => at.parts(Change::AnnotationsChanged, was, is),
            (name, ..) => at.parts(change_of(name), was, is),
        });
    }

    /// Visits each member that either object has.
    pub(super) fn each_member(
        &mut self,
        was: &Json,
        is: &Json,
        visit: impl Fn(&mut Self, &str, Option<&Json>, Option<&Json>),
    ) {
        let (was, is) = (members(was), members(is));
        let before: HashMap<&str, &Json> = was.iter().map(|(name, was)| (&**name, was)).collect();
        let after: HashMap<&str, &Json> = is.iter().map(|(name, is)| (&**name, is)).collect();
        let added = is.iter().filter(|(name, _)| !before.contains_key(&**name));
        for (name, _) in was.iter().chain(added) {
            let (was, is) = (before.get(&**name).copied(), after.get(&**name).copied());
            self.at_member(name, |at| visit(at, name, was, is));
        }
    }

    /// Reports each part of two values that differs, as one kind.
    pub(super) fn parts(&mut self, change: Change, was: Option<&Json>, is: Option<&Json>) {
        match (was, is) {
            (Some(was), Some(is)) if was.is_object() && is.is_object() => {
                self.each_member(was, is, |at, _, was, is| at.parts(change, was, is));
            }
            (Some(before), Some(after)) if self.are_same(before, after) => {}
            (None, None) => {}
            _ => self.add(change, was, is),
        }
    }

    fn capabilities(&mut self, was: Option<&Json>, is: Option<&Json>) {
        // Nobody misses what was off.
        let on = |flag: &&Json| flag.as_text() != "false";
        match (was.filter(on), is.filter(on)) {
            (Some(was), Some(is)) if was.is_object() && is.is_object() => {
                self.each_member(was, is, |at, _, was, is| at.capabilities(was, is));
            }
            // Each extension is a capability.
            (was, is) if self.path.pointer == EXTENSIONS => {
                let [was, is] = [was, is].map(|it| it.cloned().unwrap_or_else(Json::empty_object));
                self.each_member(&was, &is, |at, _, was, is| at.capabilities(was, is));
            }
            (Some(_), None) => self.add(Change::ItemGone, was, is),
            (None, Some(_)) => self.add(Change::ItemAdded, was, is),
            (was, is) => self.parts(Change::DefinitionChanged, was, is),
        }
    }

    fn versions(&mut self, was: Option<&Json>, is: Option<&Json>) {
        // The other era has one version only.
        let (Some(was), Some(is)) = (was.map(elements), is.map(elements)) else {
            return;
        };
        for gone in was.iter().filter(|version| !is.contains(version)) {
            self.add(Change::ItemGone, Some(gone), None);
        }
        // Legacy clients do not read the list.
        let is_legacy = |version: &Json| {
            let name = version.as_str();
            name.and_then(|name| Revision::from_name(&name))
                .is_some_and(|known| known.era == Era::Legacy)
        };
        for added in is.iter().filter(|it| !was.contains(it) && !is_legacy(it)) {
            self.add(Change::ItemAdded, None, Some(added));
        }
    }

    /// Compares the arguments of a prompt by name.
    fn prompt_arguments(&mut self, was: Option<&Json>, is: Option<&Json>) {
        let named = |all: Option<&Json>| {
            let all = all
                .map(elements)
                .unwrap_or_default()
                .into_iter()
                .enumerate();
            let name = |argument: &Json| argument.text_at("name");
            // An argument without a name is the one at its place.
            all.map(|(at, argument)| (name(&argument).unwrap_or_else(|| at.to_string()), argument))
                .collect::<Vec<_>>()
        };
        let is_required = |argument: &Json| argument.flag("required");
        let (was, is) = (named(was), named(is));
        for (index, (name, before)) in was.iter().enumerate() {
            let after = is.iter().find(|(other, _)| other == name).map(|(_, is)| is);
            self.at_member(&index.to_string(), |at| match after {
                None => at.add(Change::ArgumentGone, Some(before), None),
                Some(after) => at.each_member(before, after, |at, name, was, is| match name {
                    "required" => match (is_required(before), is_required(after)) {
                        (false, true) => at.add(Change::ArgumentRequired, was, is),
                        (true, false) => at.add(Change::InputWidened, was, is),
                        _ => {}
                    },
                    name => at.parts(change_of(name), was, is),
                }),
            });
        }
        for (index, (name, after)) in is.iter().enumerate() {
            if was.iter().all(|(other, _)| other != name) {
                let change = if is_required(after) {
                    Change::ArgumentRequired
                } else {
                    Change::ArgumentAdded
                };
                self.at_member(&index.to_string(), |at| at.add(change, None, Some(after)));
            }
        }
    }
}
