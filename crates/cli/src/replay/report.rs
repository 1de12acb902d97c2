//! The report of a replay, as text and as JSON, and its exit status.

use std::collections::BTreeMap;

use bytes::Bytes;
use fanlight_canonical::comparison::{Difference, Severity};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::secret::{is_secret, without_secrets};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{ArrayBuilder, Json, MAX_NESTING, ObjectBuilder};

use super::plan::{Skipped, subject};
use crate::cli::ReplayArgs;
use crate::judge::Mask;
use crate::observe::style::Style;
use crate::{Result, counted, out, say};

/// The replacement for secrets.
const MASKED: &str = "[masked]";
/// The limit of characters shown of a value and of a name.
const SHOWN: usize = 100;

/// One thing that was compared, or a request that was not sent.
pub(super) struct Case {
    /// `opening`, the kind of a definition, or the method of a request.
    pub(super) what: String,
    /// The name or URI.
    pub(super) name: String,
    pub(super) differences: Vec<Difference>,
    /// The reason why it was not compared.
    pub(super) skipped: Option<String>,
}

/// Everything that was compared.
pub(super) struct Report<'a> {
    pub(super) args: &'a ReplayArgs,
    /// The recorded server, unless the side of clients was replayed.
    pub(super) from: Option<&'a str>,
    pub(super) cases: Vec<Case>,
    pub(super) declined: Vec<String>,
    pub(super) mask: Mask,
}

impl Case {
    pub(super) fn new(what: &str, name: String, differences: Vec<Difference>) -> Self {
        let what = what.to_owned();
        Self {
            what,
            name,
            differences,
            skipped: None,
        }
    }

    pub(super) fn skipped(skipped: &Skipped<'_>) -> Self {
        let method = skipped.exchange.method.as_str();
        let case = Self::new(method, subject(skipped.exchange), Vec::new());
        Self {
            skipped: Some(skipped.why.to_owned()),
            ..case
        }
    }

    /// A list that could not be read.
    pub(super) fn unlisted(kind: ListKind, error: &str) -> Self {
        let case = Self::new(kind.method().as_str(), String::new(), Vec::new());
        Self {
            skipped: Some(format!("cannot be read: {error}")),
            ..case
        }
    }

    pub(super) fn differs(&self) -> bool {
        !self.differences.is_empty()
    }
}

impl Report<'_> {
    /// Prints the report.
    ///
    /// # Errors
    ///
    /// If there are differences that matter, or nothing was compared.
    pub(super) fn finish(self) -> Result {
        match self.args.json {
            true => out::json(self.json().as_text()),
            false => self.print(),
        }
        let differences = || self.cases.iter().flat_map(|case| &case.differences);
        let fails = |one: &&Difference| one.change.severity() >= self.args.fail_on.severity();
        if self.compared() == 0 {
            return Err(usage!(
                "nothing could be judged: nothing was compared; `--from` chooses a recorded server",
            ));
        }
        match differences().filter(fails).count() {
            0 => Ok(()),
            count => Err(failure!(
                "{} of severity {:?} or worse",
                counted(count, "difference"),
                self.args.fail_on.severity().as_str()
            )),
        }
    }

    fn compared(&self) -> usize {
        self.cases
            .iter()
            .filter(|case| case.skipped.is_none())
            .count()
    }

    /// A value without secrets.
    fn mask_value(&self, difference: &Difference, value: &Json) -> String {
        let last = difference.pointer.rsplit('/').next().unwrap_or_default();
        match is_secret(last) {
            true => format!("\"{MASKED}\""),
            false => self.hidden(value.as_text()),
        }
    }

    /// A text without secrets.
    fn hidden(&self, text: &str) -> String {
        let clean = without_secrets(text, MASKED);
        self.mask.hide(&clean.unwrap_or_else(|| text.to_owned()))
    }

    /// The short name of a compared case.
    pub(super) fn title(&self, case: &Case) -> String {
        plain(
            &self.hidden(format!("{} {}", case.what, case.name).trim()),
            SHOWN,
        )
    }

    /// The reason why something was not compared.
    pub(super) fn reason(&self, case: &Case) -> Option<String> {
        Some(plain(&self.hidden(case.skipped.as_ref()?), SHOWN))
    }

    /// A line about a difference, with short values.
    pub(super) fn line(&self, difference: &Difference) -> String {
        let line = difference.line(|value| plain(&self.mask_value(difference, value), SHOWN));
        plain(&line, 4 * SHOWN)
    }

    fn print(&self) {
        let style = Style::for_stdout();
        for case in self.cases.iter().filter(|case| case.differs()) {
            say!("{}", style.bold(&self.title(case)));
            for difference in &case.differences {
                let line = self.line(difference);
                let line = match difference.change.severity() {
                    Severity::Breaking => style.bad(&line),
                    Severity::Look => style.warn(&line),
                    Severity::Value => line,
                };
                say!("  {line}");
            }
        }
        let mut skipped = BTreeMap::<String, usize>::new();
        for case in &self.cases {
            let line = self
                .reason(case)
                .map(|why| format!("{} {why}", self.title(case)));
            line.into_iter()
                .for_each(|line| *skipped.entry(line).or_default() += 1);
        }
        for (line, count) in skipped {
            say!(
                "{} {line} ({})",
                style.dim("not compared:"),
                counted(count, "request")
            );
        }
        for question in &self.declined {
            say!(
                "{} {}",
                style.dim("declined, since it is not recorded:"),
                plain(question, SHOWN)
            );
        }
        let counts = [Severity::Breaking, Severity::Look, Severity::Value].map(|severity| {
            let all = self.cases.iter().flat_map(|case| &case.differences);
            let count = all.filter(|one| one.change.severity() == severity).count();
            format!("{count} {}", severity.as_str())
        });
        let compared = self.compared();
        say!(
            "{compared} definitions and answers compared: {}",
            counts.join(", ")
        );
    }

    fn json(&self) -> Json {
        let (mut all, mut skipped, mut declined) =
            <(ArrayBuilder, ArrayBuilder, ArrayBuilder)>::default();
        for case in &self.cases {
            for difference in &case.differences {
                all.push(&self.json_of(case, difference));
            }
            if let Some(why) = self.reason(case) {
                let mut one = self.subject_of(case);
                one.string("why", &why);
                skipped.push(&one.finish());
            }
        }
        self.declined.iter().for_each(|method| {
            declined.push(&Json::string(method));
        });
        let mut report = ObjectBuilder::new();
        report.member("from", &self.from.map_or_else(Json::null, Json::string));
        report.integer(
            "compared",
            i64::try_from(self.compared()).unwrap_or(i64::MAX),
        );
        report.member("differences", &all.finish());
        report.member("skipped", &skipped.finish());
        report.member("declined", &declined.finish());
        report.finish()
    }

    fn subject_of(&self, case: &Case) -> ObjectBuilder {
        let mut subject = ObjectBuilder::new();
        subject.string("what", &case.what);
        subject.string("name", &self.hidden(&case.name));
        subject
    }

    fn json_of(&self, case: &Case, difference: &Difference) -> Json {
        let Difference {
            change,
            pointer,
            was,
            is,
            more,
            ..
        } = difference;
        let mut one = self.subject_of(case);
        one.string("severity", change.severity().as_str());
        one.string("kind", change.name());
        one.string("pointer", pointer);
        for (name, value) in [("was", was), ("is", is)] {
            if let Some(value) = value {
                let text = self.mask_value(difference, value);
                let parsed = Json::parse(Bytes::from(text.clone()), MAX_NESTING);
                one.member(name, &parsed.unwrap_or_else(|_| Json::string(&text)));
            }
        }
        one.integer("more", i64::try_from(*more).unwrap_or(i64::MAX));
        one.finish()
    }
}
