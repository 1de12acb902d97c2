//! A server's resource templates and a client's URI: the last line is the URI, the others are
//! templates. No input panics, and a template matches its own expansions.

use fanlight_gateway::catalogue::uri_template::UriTemplate;

use crate::cost::{Cost, Linear, bounded};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (templates, uri) = text.rsplit_once('\n').unwrap_or((text, ""));
    for template in templates.lines() {
        let length = template.len() + uri.len();
        let Some(parsed) = bounded(length, Cost::ELEMENTS, || UriTemplate::parse(template)) else {
            continue;
        };
        // Each expression is compared with the whole URI; the gateway bounds URIs and templates.
        let buffers = 2 * template.matches('{').count() as u64 + 2;
        let cost = Cost {
            allocations: Linear(buffers, 0),
            bytes: Linear(buffers, buffers),
            milliseconds: 100,
        };
        bounded(length, cost, || parsed.matches(uri));
        // Every expression can stand for some letters.
        assert!(
            parsed.matches(&expanded(template)),
            "{template} does not match its expansion"
        );
    }
}

/// The template with `x` in place of each expression.
fn expanded(template: &str) -> String {
    let mut parts = template.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "x" + part.split_once('}').map_or("", |(_, literal)| literal)
    })
}
