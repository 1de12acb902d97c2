//! The reference of all options, docs/configuration.md.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::definition::{Definition, Form, Section};
use crate::model::Config;
use crate::option::Options as _;
use crate::units::{format_duration, format_size};

/// The reference of all options in Markdown, with a line break at the end.
pub fn reference() -> String {
    let sections = sections();
    let anchors = anchors(&sections);
    let mut text = include_str!("reference.md").to_owned();
    for (definition, section) in &sections {
        push_section(&mut text, *definition, section, &anchors);
    }
    text
}

/// The default of an option in the reference.
fn default(option: &Definition) -> String {
    option
        .default()
        .map_or(String::new(), |default| match default {
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        })
}

/// Each section once, after the section that contains it, with the option that holds it.
pub(crate) fn sections() -> Vec<(Option<&'static Definition>, &'static Section)> {
    let (mut pending, mut found) = (vec![(None, Config::SECTION)], Vec::<(_, &Section)>::new());
    while let Some((definition, section)) = pending.pop() {
        if found.iter().any(|(_, known)| known.name == section.name) {
            continue;
        }
        found.push((definition, section));
        let mut inner: Vec<_> = section
            .definitions
            .iter()
            .filter_map(|option| Some((Some(option), nested(option)?)))
            .collect();
        inner.dedup_by_key(|(_, section)| section.name);
        pending.extend(inner.into_iter().rev());
    }
    found
}

/// The link targets of sections by name, as Markdown makes them from headings.
type Anchors = BTreeMap<&'static str, String>;

fn anchors(sections: &[(Option<&'static Definition>, &'static Section)]) -> Anchors {
    let mut counts = BTreeMap::<String, usize>::new();
    let anchor = |(definition, section): &(Option<&Definition>, &'static Section)| {
        let title = title(*definition)
            .to_lowercase()
            .replace(' ', "-")
            .replace('`', "");
        let earlier = counts.entry(title.clone()).or_default();
        let anchor = if *earlier == 0 {
            title
        } else {
            format!("{title}-{earlier}")
        };
        *earlier += 1;
        (section.name, anchor)
    };
    sections.iter().map(anchor).collect()
}

/// The section that an option holds.
fn nested(option: &Definition) -> Option<&'static Section> {
    section_in((option.form)())
}

fn section_in(form: Form) -> Option<&'static Section> {
    match form {
        Form::Section(section)
        | Form::WordOr(_, section)
        | Form::Sections(section)
        | Form::Named(section)
        | Form::Paths(section) => Some(section),
        Form::Map(inner) => section_in(*inner),
        _ => None,
    }
}

fn title(option: Option<&Definition>) -> String {
    option.map_or("Top level".to_owned(), |option| match (option.form)() {
        Form::Sections(_) | Form::Named(_) | Form::Paths(_) | Form::Map(_) => {
            format!("One of `{}`", option.key)
        }
        _ => format!("`{}`", option.key),
    })
}

fn push_section(
    text: &mut String,
    option: Option<&Definition>,
    section: &Section,
    anchors: &Anchors,
) {
    text.push_str(&format!(
        "\n## {}\n\n{}\n\n| option | value | default | meaning |\n|---|---|---|---|\n",
        title(option),
        section.about
    ));
    for option in section.definitions {
        let form = (option.form)();
        let default = default(option);
        let about = option.about.replace('|', "\\|");
        text.push_str(&format!(
            "| `{}` | {} | {default} | {about} |\n",
            option.key,
            value(&form, option.key, anchors)
        ));
    }
    if !section.aliases.is_empty() {
        text.push_str("\nOther names, which the files of other programs have:\n\n");
        for alias in section.aliases {
            text.push_str(&format!("- `{}`: {}\n", alias.key, alias.about));
        }
    }
    if !section.foreign.is_empty() {
        let keys = section.foreign.join("`, `");
        text.push_str(&format!(
            "\nSettings of other programs, accepted without effect: `{keys}`.\n"
        ));
    }
}

/// The possible values of an option.
fn value(form: &Form, key: &str, anchors: &Anchors) -> String {
    let anchor = |section: &Section| anchors.get(section.name).cloned().unwrap_or_default();
    match form {
        Form::Text(_) => "text".to_owned(),
        Form::Flag => "`true` or `false`".to_owned(),
        Form::Duration { min, max } => format!(
            "duration, {} to {}",
            format_duration(*min),
            format_duration(*max)
        ),
        Form::Size { min, max } => format!("size, {} to {}", format_size(*min), format_size(*max)),
        Form::Count { min, max } => format!("number, {min} to {max}"),
        Form::Share => "number, 0 to 1".to_owned(),
        Form::OrOff(inner) => format!("{}, or `off`", value(inner, key, anchors)),
        Form::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        Form::Texts(_) | Form::Scalars => "list of texts".to_owned(),
        Form::Pairs => "names with texts".to_owned(),
        Form::Section(section) => format!("see [`{}`](#{})", section.name, anchor(section)),
        Form::TextOrTexts(_) => "text, or list of texts".to_owned(),
        Form::FlagOrTexts(_) => "`true`, `false`, or list of texts".to_owned(),
        Form::WordOr(word, section) => format!("`{word}`, or see [`{key}`](#{})", anchor(section)),
        Form::Sections(section) => format!("list of [values](#{})", anchor(section)),
        Form::Named(_) => "names with servers".to_owned(),
        Form::Paths(_) => "paths with endpoints".to_owned(),
        Form::Map(inner) => match &**inner {
            Form::Section(section) => format!("names with [values](#{})", anchor(section)),
            inner => format!("names with {}", value(inner, key, anchors)),
        },
        Form::Json([], _) => "JSON".to_owned(),
        Form::Json(types, _) => types.join(" or "),
        Form::Any => "anything".to_owned(),
    }
}
