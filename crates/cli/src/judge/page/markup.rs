//! HTML in which a server's text never becomes markup.

use fanlight_credentials::escaped_html;
use fanlight_protocol::visible::escaped_lines;

/// Builds HTML. Only literals of this program can be markup, and every other text is escaped.
#[derive(Default)]
pub(super) struct Markup(String);

impl Markup {
    /// Adds markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds text, with invisible characters escaped.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        // Escape sequences for terminal colours survive the first step, but mean nothing here.
        let visible = escaped_lines(text).replace('\u{1b}', "\\u001b");
        self.0 += &escaped_html(&visible);
        self
    }

    /// Adds text between two literals.
    pub(super) fn element(
        &mut self,
        open: &'static str,
        text: &str,
        close: &'static str,
    ) -> &mut Self {
        self.raw(open).text(text).raw(close)
    }

    pub(super) fn finish(self) -> String {
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
