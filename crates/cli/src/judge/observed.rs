//! Collects findings about a server.

use std::collections::BTreeMap;

use fanlight_protocol::Era;

use crate::judge::mask::Mask;
use crate::judge::report::{Finding, Severity};

/// The most examples that are kept for one finding.
const EXAMPLES: usize = 3;

/// Findings by rule. Repeated findings count as one.
#[derive(Debug)]
pub(crate) struct Observed {
    era: Era,
    mask: Mask,
    /// Whether the server may send requests, because it knows the client's capabilities. In the
    /// modern era it never may.
    pub(crate) may_ask: bool,
    found: BTreeMap<&'static str, Finding>,
}

impl Observed {
    /// No findings yet, for a target with these secrets.
    pub(crate) fn new(era: Era, mask: &Mask) -> Self {
        Self {
            era,
            mask: mask.clone(),
            may_ask: false,
            found: BTreeMap::new(),
        }
    }

    /// Adds a finding, or an example of a known one. `what` is a sentence about the server,
    /// `example` tells where.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        rule: &'static str,
        what: &str,
        example: impl Into<String>,
    ) {
        let (era, example) = (self.era, shorten(&self.mask.hide(&example.into())));
        let finding = self.found.entry(rule).or_insert_with(|| Finding {
            severity,
            rule: rule.to_owned(),
            what: what.to_owned(),
            eras: vec![era],
            examples: Vec::new(),
            count: 0,
        });
        finding.count += 1;
        if !example.is_empty()
            && finding.examples.len() < EXAMPLES
            && !finding.examples.contains(&example)
        {
            finding.examples.push(example);
        }
    }

    pub(crate) fn error(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Error, rule, what, example);
    }

    pub(crate) fn warn(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Warning, rule, what, example);
    }

    pub(crate) fn note(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Note, rule, what, example);
    }

    /// Adds the findings to `all`. Findings of the same rule in another era are joined.
    pub(crate) fn join(self, all: &mut Vec<Finding>) {
        for finding in self.found.into_values() {
            match all.iter_mut().find(|known| known.rule == finding.rule) {
                Some(known) => known.eras.extend(finding.eras),
                None => all.push(finding),
            }
        }
    }
}

/// A server's text, shortened to an example and with invisible characters escaped.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut short: String = text.trim().chars().take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST {
        short.push('…');
    }
    fanlight_protocol::visible::escaped(&short).into_owned()
}
