//! A server's resource templates and a client's URI: the last line is the URI, the others are
//! templates. No input panics, and a template matches its own expansions.

use std::cell::Cell;

use fanlight_gateway::catalogue::uri_template::matches;

use crate::cost::{Cost, Linear, bounded};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (templates, uri) = text.rsplit_once('\n').unwrap_or((text, ""));
    for template in templates.lines() {
        let length = template.len() + uri.len();
        // Each expression is compared with the whole URI; the gateway bounds URIs and templates.
        let buffers = 2 * template.matches('{').count() as u64 + 2;
        let cost = Cost {
            allocations: Linear(buffers, 0),
            bytes: Linear(buffers, buffers),
            milliseconds: 100,
        };
        bounded(length, cost, || {
            matches(template, uri, &Cell::new(usize::MAX))
        });
        // Every expression can stand for some letters.
        if let Some(expanded) = expanded(template) {
            assert!(
                matches(template, &expanded, &Cell::new(usize::MAX)),
                "{template} does not match its expansion"
            );
        }
    }
}

/// The template with `x` in place of each expression; `None` if it has none, or a malformed one.
fn expanded(template: &str) -> Option<String> {
    let (first, rest) = template.split_once('{')?;
    rest.split('{').try_fold(first.to_owned(), |text, part| {
        let (expression, literal) = part.split_once('}')?;
        let is_whole = !expression.is_empty() && !literal.contains('}');
        is_whole.then(|| text + "x" + literal)
    })
}
