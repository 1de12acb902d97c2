//! The figures of one file: its tokens, its lines of code and the lengths of its functions.
//!
//! A token is a name, a number, a text or a sign; a pair of brackets is one sign. Comments,
//! documentation and test-only items do not count. A line of code has at least one token.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItemFn, Item, ItemFn, Signature, TraitItemFn};

/// The code of one file.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// The number of tokens: names, numbers, texts and signs. Unlike lines, they do not depend on
    /// the format.
    pub(crate) tokens: usize,
    /// The number of lines with at least one token.
    pub(crate) lines: usize,
    /// The lines of code of each function, from its signature to its closing brace.
    pub(crate) functions: Vec<usize>,
    /// Test-only modules that have their own files.
    pub(crate) test_modules: Vec<String>,
}

impl Code {
    /// Counts a file's code.
    ///
    /// # Errors
    ///
    /// Fails if `text` is not Rust.
    pub(crate) fn parse(text: &str) -> syn::Result<Self> {
        let file = syn::parse_file(text)?;
        if file.attrs.iter().any(is_for_tests) {
            return Ok(Self::default());
        }
        let mut lines = BTreeMap::new();
        add_tokens(text.parse()?, &mut lines);
        let mut visitor = Visitor {
            lines,
            code: Self::default(),
        };
        visitor.visit_file(&file);
        visitor.code.lines = visitor.lines.len();
        visitor.code.tokens = visitor.lines.values().sum();
        Ok(visitor.code)
    }
}

/// The numbers of the lines of code, each with how many tokens begin there.
type Lines = BTreeMap<usize, usize>;

struct Visitor {
    /// The number of tokens that begin on each line of code.
    lines: Lines,
    code: Code,
}

impl Visitor {
    fn add_function(&mut self, signature: &Signature, block: &Block) {
        let lines = signature.span().start().line..=block.span().end().line;
        self.code.functions.push(self.lines.range(lines).count());
    }

    /// Removes the lines of `item` and of its attributes.
    fn remove(&mut self, item: Span) {
        let lines = item.start().line..=item.end().line;
        self.lines.retain(|line, _| !lines.contains(line));
    }
}

impl Visit<'_> for Visitor {
    fn visit_item(&mut self, item: &Item) {
        if !attributes(item).iter().any(is_for_tests) {
            return visit::visit_item(self, item);
        }
        self.remove(item.span());
        if let Item::Mod(module) = item
            && module.content.is_none()
        {
            self.code.test_modules.push(module.ident.to_string());
        }
    }

    fn visit_item_fn(&mut self, function: &ItemFn) {
        self.add_function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        if function.attrs.iter().any(is_for_tests) {
            return self.remove(function.span());
        }
        self.add_function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &TraitItemFn) {
        if let Some(block) = &function.default {
            self.add_function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Adds all tokens outside of documentation.
fn add_tokens(tokens: TokenStream, lines: &mut Lines) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_hash = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '#');
        // `//!` is `#![doc = "…"]`.
        let mark = tokens.next_if(|next| {
            is_hash && matches!(next, TokenTree::Punct(mark) if mark.as_char() == '!')
        });
        if is_hash && tokens.next_if(is_documentation).is_some() {
            continue;
        }
        for token in [Some(token), mark].into_iter().flatten() {
            add_token(token, lines);
        }
    }
}

fn add_token(token: TokenTree, lines: &mut Lines) {
    let mut add = |line, tokens| *lines.entry(line).or_default() += tokens;
    match token {
        TokenTree::Group(group) => {
            if group.delimiter() != Delimiter::None {
                add(group.span_open().start().line, 1);
                add(group.span_close().end().line, 0);
            }
            add_tokens(group.stream(), lines);
        }
        // `::`, `=>` and `..=` are one sign: the last character counts.
        TokenTree::Punct(mark) if mark.spacing() == Spacing::Joint && mark.as_char() != '\'' => {
            add(mark.span().start().line, 0);
        }
        // The name after it makes a lifetime one token.
        TokenTree::Punct(mark) if mark.as_char() == '\'' => {}
        token => {
            let (first, last) = (token.span().start().line, token.span().end().line);
            add(first, 1);
            (first + 1..=last).for_each(|line| add(line, 0));
        }
    }
}

fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else {
        return false;
    };
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// Whether an attribute is a `cfg` that contains `test` and no `not`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let has = |name| words(list.tokens.clone()).any(|word| word == name);
    list.path.is_ident("cfg") && has("test") && !has("not")
}

/// All identifiers of `tokens`.
fn words(tokens: TokenStream) -> Box<dyn Iterator<Item = proc_macro2::Ident>> {
    Box::new(tokens.into_iter().flat_map(|token| match token {
        TokenTree::Group(group) => words(group.stream()),
        TokenTree::Ident(name) => Box::new(std::iter::once(name)),
        _ => Box::new(std::iter::empty()),
    }))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"//! A module.

/// A comment
/// of two lines.
#[derive(Debug)]
struct One;

/* A block
   of comment. */
impl One {
    // Why.
    fn text() -> &'static str {
        // Why.
        "first
        // inside of a text"
    }

    #[cfg(test)]
    fn for_tests() {}
}

#[cfg(not(test))]
fn outside_of_tests() {}

#[cfg(test)]
mod helpers;

#[cfg(test)]
mod tests {
    fn f() {}
}
"##;

    #[test]
    fn comments_and_tests_do_not_count() {
        let code = Code::parse(TEXT).unwrap();
        // `# [derive (Debug)] struct One ;`, `impl One {}`, `fn text () -> & 'static str {} "…"`,
        // `# [cfg (not (test))] fn outside_of_tests () {}`.
        assert_eq!(code.tokens, 8 + 3 + 9 + 10);
        assert_eq!(code.lines, 2 + 6 + 2);
        assert_eq!(code.functions, [4, 1]);
        assert_eq!(code.test_modules, ["helpers"]);
    }
}
