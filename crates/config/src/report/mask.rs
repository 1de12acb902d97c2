//! The text of a config file that a message may show: values of options without secrets, and values
//! of unknown keys that cannot be secrets ([`harmless`](super::harmless)). So a mistyped key, or a
//! file of one line, does not reveal a token.

use std::collections::HashSet;

use crate::document::{Node, Source, Span, Syntax, Value};

use super::harmless::{self, holds_secrets};
use super::lexical;
use crate::definition::{Form, Section, Visible};

/// The text in place of a secret.
pub(crate) const HIDDEN: &str = "***";

/// The hidden parts of one file.
pub(crate) enum Masked {
    /// Spans in the file's order.
    Spans(Vec<Span>),
    /// The file could not be parsed; each line is judged on its own.
    Lexically(Syntax),
}

impl Masked {
    /// Finds the secrets of a parsed file. `written` is the whole file if `root` is only the part
    /// of it that Fanlight uses.
    pub(crate) fn find(
        root: Option<&Node>,
        written: Option<&Node>,
        section: &Section,
        source: &Source,
        syntax: Syntax,
    ) -> Self {
        let Some(root) = root else {
            return Self::Lexically(syntax);
        };
        let mut spans = Vec::new();
        collect(root, section, source, &mut spans);
        if let Some(written) = written {
            let mut taken = HashSet::new();
            scalars(root, &mut taken);
            collect_others(written, "", &taken, &mut spans);
        }
        // In order, so that one pass masks a line; text behind an alias was collected more than
        // once.
        spans.sort_by_key(|span| (span.start, span.end));
        spans.dedup();
        Self::Spans(spans)
    }

    /// The text of a part of a line, with an asterisk for each hidden character.
    pub(crate) fn line(&self, source: &Source, line: Span, part: Span) -> String {
        // In broken text, keys are only recognizable from the start of the line.
        let masked = match self {
            Self::Spans(spans) => return mask_spans(source.slice(part), part, spans),
            Self::Lexically(syntax) => lexical::mask(source, *syntax, line),
        };
        let skipped = source
            .slice(Span::new(line.start, part.start))
            .chars()
            .count();
        masked
            .chars()
            .skip(skipped)
            .take(source.slice(part).chars().count())
            .collect()
    }
}

/// Finds the hidden parts of a mapping: values of options that may hold a secret, and possible
/// secrets in other keys.
fn collect(node: &Node, section: &Section, source: &Source, spans: &mut Vec<Span>) {
    let Value::Map(entries) = &node.value else {
        return hide(node, spans);
    };
    for entry in entries {
        let form = section
            .find(&entry.key)
            .map(|definition| (definition.form)());
        if form.is_none() && is_harmless(&entry.key, &entry.value) {
            continue;
        }
        collect_option(&entry.value, form.as_ref(), source, spans);
    }
}

/// Finds the hidden parts of a client's own settings: all scalars that were not `taken` and may be
/// secrets.
fn collect_others(node: &Node, key: &str, taken: &HashSet<Span>, spans: &mut Vec<Span>) {
    match &node.value {
        Value::Map(entries) => {
            let inherited = |entry: &'_ str| {
                if holds_secrets(key) {
                    key.to_owned()
                } else {
                    entry.to_owned()
                }
            };
            entries.iter().for_each(|entry| {
                collect_others(&entry.value, &inherited(&entry.key), taken, spans);
            });
        }
        Value::List(items) => items
            .iter()
            .for_each(|item| collect_others(item, key, taken, spans)),
        _ if taken.contains(&node.span) || is_harmless(key, node) => {}
        _ => hide(node, spans),
    }
}

/// The positions of all scalars below a node.
fn scalars(node: &Node, places: &mut HashSet<Span>) {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| scalars(&entry.value, places)),
        Value::List(items) => items.iter().for_each(|item| scalars(item, places)),
        _ => {
            places.insert(node.span);
        }
    }
}

fn is_harmless(key: &str, node: &Node) -> bool {
    match &node.value {
        Value::String(text) | Value::Number(text) => harmless::is_harmless(key, text),
        _ => false,
    }
}

fn collect_option(node: &Node, form: Option<&Form>, source: &Source, spans: &mut Vec<Span>) {
    match (form, &node.value) {
        (Some(Form::WordOr(..)), Value::String(_)) => {}
        (Some(Form::Section(section) | Form::WordOr(_, section)), _) => {
            collect(node, section, source, spans);
        }
        (Some(Form::Sections(section)), Value::List(items)) => {
            items
                .iter()
                .for_each(|item| collect(item, section, source, spans));
        }
        (Some(Form::Paths(_)), Value::Null) => {}
        (Some(Form::Named(section) | Form::Paths(section)), Value::Map(entries)) => {
            entries
                .iter()
                .for_each(|entry| collect(&entry.value, section, source, spans));
        }
        (Some(Form::Map(inner)), Value::Map(entries)) => {
            entries
                .iter()
                .for_each(|entry| collect_option(&entry.value, Some(inner), source, spans));
        }
        (Some(Form::Text(part @ (Visible::FirstWord | Visible::Authority))), Value::String(_)) => {
            let shown = shown_start(source.slice(node.span), *part);
            spans.push(Span::new(node.span.start + shown, node.span.end));
        }
        (Some(form), _) if is_shown(form) => {}
        _ => hide(node, spans),
    }
}

fn is_shown(form: &Form) -> bool {
    match form {
        Form::Text(visible)
        | Form::Texts(visible)
        | Form::TextOrTexts(visible)
        | Form::FlagOrTexts(visible)
        | Form::Json(_, visible) => *visible == Visible::All,
        Form::OrOff(inner) => is_shown(inner),
        Form::Flag
        | Form::Duration { .. }
        | Form::Size { .. }
        | Form::Count { .. }
        | Form::Share
        | Form::Choice(_)
        | Form::Any => true,
        Form::Scalars
        | Form::Pairs
        | Form::Section(_)
        | Form::WordOr(..)
        | Form::Sections(_)
        | Form::Named(_)
        | Form::Paths(_)
        | Form::Map(_) => false,
    }
}

/// Whether the values of an option may hold secrets. Its own sections are judged by themselves.
pub(crate) fn may_be_secret(form: &Form) -> bool {
    match form {
        Form::OrOff(inner) | Form::Map(inner) => may_be_secret(inner),
        Form::Section(_)
        | Form::WordOr(..)
        | Form::Sections(_)
        | Form::Named(_)
        | Form::Paths(_) => false,
        form => !is_shown(form),
    }
}

/// The number of shown bytes of a command or URL. User information before an `@` is hidden.
fn shown_start(text: &str, part: Visible) -> usize {
    if part == Visible::FirstWord {
        return text.find(char::is_whitespace).unwrap_or(text.len());
    }
    let authority = text.find("://").map_or(0, |at| at + 3);
    let rest = text.get(authority..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if rest.get(..end).is_some_and(|host| host.contains('@')) {
        return authority;
    }
    authority + end
}

/// Hides every scalar below a node; keys stay.
fn hide(node: &Node, spans: &mut Vec<Span>) {
    match &node.value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) | Value::String(_) => spans.push(node.span),
        Value::List(items) => items.iter().for_each(|item| hide(item, spans)),
        Value::Map(entries) => entries.iter().for_each(|entry| hide(&entry.value, spans)),
    }
}

/// Hides the part of `spans` within `part`, whose text is `text`, except quotes and the names of
/// variables.
fn mask_spans(text: &str, part: Span, spans: &[Span]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut variable = Variable::default();
    let passed = spans.partition_point(|span| span.end <= part.start);
    let mut spans = spans.iter().skip(passed).peekable();
    for (index, c) in text.char_indices() {
        let at = part.start + index;
        while spans.next_if(|span| span.end <= at).is_some() {}
        let hidden = spans.peek().is_some_and(|span| span.start <= at);
        let rest = text.get(index..).unwrap_or_default();
        let shown = variable.shows(c, rest) || c.is_whitespace() || matches!(c, '"' | '\'' | ',');
        masked.push(if hidden && !shown { '*' } else { c });
    }
    masked
}

/// Follows `${NAME` and `${NAME:-` through a text: names are shown, defaults are hidden.
#[derive(Default)]
struct Variable {
    hidden_to_go: usize,
    shown_to_go: usize,
    open: usize,
}

impl Variable {
    fn shows(&mut self, c: char, rest: &str) -> bool {
        if rest.starts_with("$${") {
            // A literal `${`: no name follows.
            self.hidden_to_go = 3;
        }
        if self.hidden_to_go > 0 {
            self.hidden_to_go -= 1;
            return false;
        }
        if rest.starts_with("${") {
            let name = rest.chars().skip(2);
            let name_len = name
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .count();
            let after = rest.get(2 + name_len..).unwrap_or_default();
            let operator = if after.starts_with(":-") { 2 } else { 0 };
            self.shown_to_go = 2 + name_len + operator;
            self.open += 1;
        }
        if self.shown_to_go > 0 {
            self.shown_to_go -= 1;
            return true;
        }
        if c == '}' && self.open > 0 {
            self.open -= 1;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Config;
    use crate::option::Options as _;

    /// The options whose texts hold no secrets, and are therefore shown.
    const SHOWN: &str = "\
        admin.listen admin.publicUrl approval.tools argument.default audit.file audit.redact \
        auth.samePeople hook.caFile issuer.caFile notify.events server.forwardHeaders \
        claims.groups claims.principal claims.scopes config.allowedHosts \
        config.allowedOrigins config.envFile config.include config.listen config.ssePath \
        config.stateDir config.trustedProxies endpoint.allow endpoint.instructions \
        endpoint.servers filter.allow filter.deny hook.when identityProvider.clientId \
        identityProvider.issuer introspection.clientId issuer.audience issuer.issuer \
        lean.always lean.except lean.groups \
        issuer.require keys.file landlock.bind landlock.connect landlock.read landlock.write \
        match.endpoint match.server match.tool otherVersion.server naming.separator \
        override.annotations override.description override.title pins.file policy.files \
        proxy.from proxy.groups proxy.header rate.for rate.rate replicas.caFile replicas.group \
        replicas.listen roles.approver roles.operator roles.viewer sandbox.user scopes.call \
        scopes.read scopes.tools server.allow server.allowTools server.caFile server.cwd \
        server.disabledTools server.envFile server.excludeTools server.includeTools \
        server.inheritEnv server.prefix server.rename server.tags serverAuth.audience \
        serverAuth.clientId serverAuth.header serverAuth.issuer serverAuth.scopes \
        serverAuth.tokenFile serverAuth.username tls.cert tls.clientCa tls.key \
        userSignIn.clientId";

    /// Adds the options below a section whose texts are shown.
    fn shown_texts(section: &Section, found: &mut std::collections::BTreeSet<String>) {
        for option in section.definitions.iter().chain(section.aliases) {
            let mut form = (option.form)();
            while let Form::OrOff(inner) | Form::Map(inner) = form {
                form = *inner;
            }
            match form {
                Form::Section(inner)
                | Form::WordOr(_, inner)
                | Form::Sections(inner)
                | Form::Named(inner)
                | Form::Paths(inner) => shown_texts(inner, found),
                Form::Text(Visible::All)
                | Form::Texts(Visible::All)
                | Form::TextOrTexts(Visible::All)
                | Form::FlagOrTexts(Visible::All)
                | Form::Json(_, Visible::All) => {
                    found.insert(format!("{}.{}", section.name, option.key));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn texts_are_hidden_unless_they_are_known_to_hold_no_secret() {
        let mut found = std::collections::BTreeSet::new();
        shown_texts(Config::SECTION, &mut found);
        // An option that goes need not wait for this list.
        found.retain(|name| !SHOWN.split_whitespace().any(|known| known == name));
        assert!(
            found.is_empty(),
            "hide these options, or list them if they hold no secret: {found:?}"
        );
    }

    #[test]
    fn urls_show_scheme_and_host_and_commands_their_program() {
        let shown = |text: &'static str| text.get(..shown_start(text, Visible::Authority)).unwrap();
        assert_eq!(shown("https://host:1/s3cret?x"), "https://host:1");
        assert_eq!(shown("https://me:pw@host/x"), "https://");
        assert_eq!(shown("\"htps:/host/x"), "\"htps:");
        assert_eq!(shown_start("npx -y --key=s3cret", Visible::FirstWord), 3);
    }
}
