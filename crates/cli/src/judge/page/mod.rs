//! The report as one HTML page without scripts and without external resources.

use fanlight_credentials::escaped_html;
use fanlight_protocol::visible::escaped_lines;
use itertools::Itertools as _;

use super::report::{EraReport, Finding, ListReport, Report, Severity};
use crate::out::counted;

/// The page loads and runs nothing, whatever a server has written.
const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n";
const STYLE: &str = concat!(
    "<style>\n",
    include_str!("style.css"),
    "</style>\n</head>\n<body>\n<main>\n"
);
const TABLE: &str =
    "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"table\"><table>";

/// The page for this report.
pub fn page(report: &Report) -> String {
    let mut html = Markup::default();
    html.raw(HEAD)
        .element(
            "<title>",
            &format!("{}: judged as an MCP server", report.target),
            "</title>\n",
        )
        .raw(STYLE);
    head(&mut html, report);
    findings(&mut html, &report.findings);
    report.eras.iter().for_each(|era| self::era(&mut html, era));
    html.raw("<h2>About this report</h2>\n");
    html.element(
        "<p class=\"dim\">Made by ",
        &report.judge,
        " with <code>fanlight check</code>. ",
    );
    html.raw(
        "The server was asked directly, in each era of the protocol; none of its tools was called. Sizes are those of JSON \
         without white space; tokens are estimated as the bytes by 4.3. Arguments of commands, and what a URL has behind its \
         host, are left out.</p>\n</main>\n</body>\n</html>\n",
    );
    html.finish()
}

fn head(html: &mut Markup, report: &Report) {
    html.element("<h1>", &report.target, "</h1>\n");
    html.element(
        "<p class=\"dim\">MCP server over ",
        report.transport,
        ", judged ",
    )
    .element("<time>", &report.at, "</time></p>\n");
    let (errors, warnings) = (
        report.count(Severity::Error),
        report.count(Severity::Warning),
    );
    let counts = format!(
        "{}, {}",
        counted(errors, "error"),
        counted(warnings, "warning")
    );
    let is_served = report.eras.iter().any(|era| era.is_served);
    match (report.is_good, is_served) {
        (true, _) => html.element(
            "<p class=\"verdict good\">Good: it breaks no rule that was checked (",
            &counts,
            ").</p>\n",
        ),
        (false, true) => html.element("<p class=\"verdict\">It has problems: ", &counts, ".</p>\n"),
        (false, false) => html
            .raw("<p class=\"verdict\">It cannot be used: it serves clients of neither era.</p>\n"),
    };
    html.raw(TABLE)
        .raw("<caption>What it serves</caption>\n<thead><tr><th scope=\"col\">Era</th><th scope=\"col\">Served</th>");
    html.raw(
        "<th scope=\"col\">Revision</th><th scope=\"col\">Server</th></tr></thead>\n<tbody>\n",
    );
    for era in &report.eras {
        html.element("<tr><th scope=\"row\">", &era.era, "</th>")
            .raw(if era.is_served {
                "<td>yes</td>"
            } else {
                "<td>no</td>"
            });
        html.element("<td>", era.revision.as_deref().unwrap_or("–"), "</td>");
        let server = era
            .server
            .as_ref()
            .map(|server| format!("{} {}", server.name, server.version));
        html.element("<td>", server.as_deref().unwrap_or("–"), "</td></tr>\n");
    }
    html.raw("</tbody></table></div>\n");
}

fn findings(html: &mut Markup, findings: &[Finding]) {
    html.raw("<h2>Findings</h2>\n");
    if findings.is_empty() {
        html.raw("<p>None.</p>\n");
        return;
    }
    html.raw("<ul class=\"findings\">\n");
    for finding in findings {
        html.raw(match finding.severity {
            Severity::Error => "<li><span class=\"severity error\">Error</span>",
            Severity::Warning => "<li><span class=\"severity warning\">Warning</span>",
            Severity::Note => "<li><span class=\"severity note\">Note</span>",
        });
        let eras = finding.eras.iter().join(", ");
        html.text(&finding.what)
            .element(" <span class=\"dim\">(", &finding.rule, "; ")
            .text(&eras)
            .raw(")</span>");
        if !finding.examples.is_empty() {
            html.raw("<ul class=\"examples\">\n");
            for example in &finding.examples {
                html.element("<li><code>", example, "</code></li>\n");
            }
            let more = finding.count.saturating_sub(finding.examples.len());
            if more > 0 {
                html.element("<li>and ", &more.to_string(), " more</li>\n");
            }
            html.raw("</ul>");
        }
        html.raw("</li>\n");
    }
    html.raw("</ul>\n");
}

fn era(html: &mut Markup, era: &EraReport) {
    html.element("<h2>The ", &era.era, " era</h2>\n");
    if let Some(reason) = &era.reason {
        html.element("<p>Not served: </p><pre>", reason, "</pre>\n");
    }
    if !era.is_served {
        return;
    }
    html.raw("<dl>\n");
    let mut row = |name: &str, value: &str| {
        html.element("<dt>", name, "</dt>").element(
            "<dd>",
            if value.is_empty() { "none" } else { value },
            "</dd>\n",
        );
    };
    if let Some(transport) = era.transport {
        row("Transport", transport);
    }
    row("Capabilities", &era.capabilities.join(", "));
    if !era.revisions.is_empty() {
        row("Revisions that it names", &era.revisions.join(", "));
    }
    row("Instructions", &counted(era.instructions_bytes, "byte"));
    for timing in &era.timings {
        row(
            &format!("Time of {}", timing.what.replace('`', "")),
            &format!("{} ms", timing.millis),
        );
    }
    if let Some(pings) = &era.pings {
        let shown = format!(
            "half within {} ms, 95% within {} ms, all within {} ms",
            pings.p50, pings.p95, pings.max
        );
        row(&format!("{} times {}", pings.count, pings.method), &shown);
    }
    html.raw("</dl>\n");
    era.lists.iter().for_each(|list| self::list(html, list));
}

fn list(html: &mut Markup, list: &ListReport) {
    html.element("<h3>", &list.kind, "</h3>\n");
    let announced = if list.announces_changes {
        "changes are announced"
    } else {
        "changes are not announced"
    };
    let kept = list.ttl_ms.map_or_else(String::new, |millis| {
        format!(", may be kept for {millis} ms")
    });
    let (count, pages) = (
        counted(list.entries.len(), "entry"),
        counted(list.pages, "page"),
    );
    let size = format!(
        "{}, about {}",
        counted(list.bytes, "byte"),
        counted(list.tokens, "token")
    );
    html.element(
        "<p>",
        &format!("{count}, {pages}, {size}; {announced}{kept}"),
        "</p>\n",
    );
    if list.entries.is_empty() {
        return;
    }
    html.element("<details><summary>All ", &list.kind, "</summary>\n")
        .raw(TABLE);
    html.element(
        "<caption>",
        &list.kind,
        "</caption>\n<thead><tr><th scope=\"col\">Name or URI</th>",
    );
    html.raw("<th scope=\"col\" class=\"number\">Bytes</th><th scope=\"col\" class=\"number\">Tokens</th><th scope=\"col\">Problems</th></tr></thead>\n<tbody>\n");
    for entry in &list.entries {
        html.element("<tr><th scope=\"row\"><code>", &entry.key, "</code></th>");
        html.element("<td class=\"number\">", &entry.bytes.to_string(), "</td>");
        html.element("<td class=\"number\">", &entry.tokens.to_string(), "</td>");
        html.element("<td>", &entry.problems.join("; "), "</td></tr>\n");
    }
    html.raw("</tbody></table></div></details>\n");
}

/// Builds HTML. Only literals of this program can be markup, and every other text is escaped.
#[derive(Default)]
struct Markup(String);

impl Markup {
    /// Adds markup.
    fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, with invisible characters escaped.
    fn text(&mut self, text: &str) -> &mut Self {
        // Escape sequences for terminal colours survive the first step, but mean nothing here.
        let visible = escaped_lines(text).replace('\u{1b}', "\\u001b");
        self.0 += &escaped_html(&visible);
        self
    }

    /// Adds text between two literals.
    fn element(&mut self, open: &'static str, text: &str, close: &'static str) -> &mut Self {
        self.raw(open).text(text).raw(close)
    }

    fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        let mut markup = Markup::default();
        markup.element(
            "<p>",
            "<script>alert(1)</script> & \"x\" 'y' \u{202e}\u{1b}[31m",
            "</p>",
        );
        assert_eq!(
            markup.finish(),
            "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;x&quot; &#39;y&#39; \\u202e\\u001b[31m</p>"
        );
    }
}
