//! Faults of a server other than wrong answers.

use std::collections::BTreeMap;

use fanlight_protocol::Era;

use crate::mask::Mask;
use crate::report::{Finding, Severity};

/// Examples of one finding that are kept.
const EXAMPLES: usize = 3;

/// Findings by their rule: what happens a thousand times is one.
#[derive(Debug)]
pub(crate) struct Observed {
    era: Era,
    mask: Mask,
    /// Whether the server knows what the client has declared, and may send requests of its own: in the modern era, it never may.
    pub(crate) may_ask: bool,
    found: BTreeMap<&'static str, Finding>,
}

impl Observed {
    /// None yet, of a target with these secrets.
    pub(crate) fn new(era: Era, mask: &Mask) -> Self {
        Self {
            era,
            mask: mask.clone(),
            may_ask: false,
            found: BTreeMap::new(),
        }
    }

    /// Adds a finding, or an example of one that there is. `what` is a sentence about the server, `example` where.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        rule: &'static str,
        what: &str,
        example: impl Into<String>,
    ) {
        let (era, example) = (self.era, shortened(&self.mask.hide(&example.into())));
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

    /// The findings; those that another era has as well are joined with its.
    pub(crate) fn join(self, all: &mut Vec<Finding>) {
        for finding in self.found.into_values() {
            match all.iter_mut().find(|known| known.rule == finding.rule) {
                Some(known) => known.eras.extend(finding.eras),
                None => all.push(finding),
            }
        }
    }
}

/// A text of a server that is short enough to be an example, without what cannot be seen.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut short: String = text.trim().chars().take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST {
        short.push('…');
    }
    fanlight_protocol::visible::escaped(&short).into_owned()
}
