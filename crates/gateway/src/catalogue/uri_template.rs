//! Tests whether a URI can have come from a resource template (RFC 6570).
//!
//! This is for routing only: a variable matches any text that its operator could have produced. The
//! literal text at both ends is compared first, which rules out most templates. The rest takes URI
//! length × number of variables, so the caller limits the steps. A template is read each time: its
//! parts would take many times the memory of its text.

use std::cell::Cell;

/// The steps for reading a template.
const READING: usize = 64;

/// Whether `uri` can be an expansion of `template`. `false` if the braces of the template do not pair
/// up, if it has no variable, or if `steps` runs out.
pub fn matches(template: &str, uri: &str, steps: &Cell<usize>) -> bool {
    expands(template, uri, steps) == Some(true)
}

fn expands(template: &str, uri: &str, steps: &Cell<usize>) -> Option<bool> {
    spend(steps, READING + template.len() / READING)?;
    let (prefix, rest) = template.split_once('{')?;
    let (mut rest, suffix) = rest.rsplit_once('}')?;
    let text = uri.strip_prefix(prefix)?.strip_suffix(suffix)?.as_bytes();
    // `reached[i]`: the parts so far can have produced the first `i` bytes.
    let mut reached = vec![false; text.len() + 1];
    *reached.first_mut()? = true;
    loop {
        let (expression, after) = rest.split_once('}').unwrap_or((rest, "{"));
        let (literal, next) = after.split_once('{')?;
        spend(steps, 2 * reached.len() + rest.len() - next.len())?;
        // These stand for any text or none, others for some text within one path segment.
        let is_any = b"+#/?&".contains(expression.as_bytes().first()?);
        let mut is_inside = false;
        for (at, slot) in reached.iter_mut().enumerate() {
            let here = *slot;
            *slot = match is_any {
                true => is_inside || here,
                false => is_inside && text.get(at - 1) != Some(&b'/'),
            };
            is_inside = *slot || here;
        }
        for end in (0..reached.len()).rev() {
            let start = end.checked_sub(literal.len());
            let is_hit = start.is_some_and(|start| {
                reached.get(start) == Some(&true)
                    && text.get(start..end) == Some(literal.as_bytes())
            });
            *reached.get_mut(end)? = is_hit;
        }
        if next.is_empty() {
            return reached.last().copied();
        }
        rest = next;
    }
}

/// Counts so many steps; `None` if no more are left.
fn spend(steps: &Cell<usize>, count: usize) -> Option<()> {
    steps.set(steps.get().saturating_sub(count));
    (steps.get() > 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(template: &str, uri: &str) -> bool {
        super::matches(template, uri, &Cell::new(10_000))
    }

    #[test]
    fn template_matches_its_expansions_only() {
        assert!(matches("file:///{path}", "file:///a"));
        assert!(!matches("file:///{path}", "file:///a/b"));
        assert!(!matches("file:///{path}", "file:///"));
        assert!(matches("file:///{+path}", "file:///a/b"));
        assert!(matches(
            "db://{table}/rows/{id}.json",
            "db://users/rows/7.json"
        ));
        assert!(!matches(
            "db://{table}/rows/{id}.json",
            "db://users/rows/7.xml"
        ));
        assert!(matches("q://x{?a,b}", "q://x?a=1&b=2"));
        assert!(matches("q://x{?a,b}", "q://x"));
        assert!(matches("{a}{b}", "xy"));
        assert!(!matches("{a}{b}", "x"));
        assert!(matches("a/{x}/a", "a/b/a"));
        assert!(!matches("aa{+x}aa", "aaa"), "the ends do not overlap");
        assert!(matches("aa{+x}aa", "aaaa"));
        assert!(!matches("no variables", "no variables"));
        assert!(!matches("broken{", "broken"));
    }

    #[test]
    fn comparison_ends_with_its_steps() {
        let steps = Cell::new(1_000_000);
        let (template, uri) = ("{+a}{b}".repeat(200_000), "1".repeat(60_000));
        assert!(!super::matches(&template, &uri, &steps));
        assert_eq!(steps.get(), 0);
    }
}
