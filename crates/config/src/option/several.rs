//! Kinds of values for one or several: a text or a list of texts, `true` or a list of texts, a list
//! of mappings, a word or a mapping.

use std::marker::PhantomData;

use serde_json::Value as Json;

use crate::definition::Form;
use crate::option::{Each, Fields, Kind, Options, Parsed, Reader};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Value};

/// A text, or a list of texts.
pub(crate) struct OneOrMany<T>(pub(crate) Parsed<T>);

impl<T> Kind for OneOrMany<T> {
    type Value = Vec<T>;

    fn form(&self) -> Form {
        Form::TextOrTexts(self.0.visible)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<T>> {
        let texts = match entry.value.value {
            Value::List(_) => reader.strings(entry)?,
            _ => vec![reader.text(entry)?],
        };
        Some(
            texts
                .into_iter()
                .filter_map(|text| (self.0.parse)(reader, text))
                .collect(),
        )
    }

    fn show(&self, value: &Vec<T>) -> Json {
        value.iter().map(self.0.show).collect()
    }
}

/// A list of texts, `true` for a text that stands for all, or `false` for none.
pub(crate) struct AllOrEach {
    pub(crate) each: Each<String>,
    pub(crate) all: &'static str,
}

impl Kind for AllOrEach {
    type Value = Vec<String>;

    fn form(&self) -> Form {
        Form::FlagOrTexts(self.each.0.visible)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<String>> {
        match entry.value.value {
            Value::Bool(true) => Some(vec![self.all.to_owned()]),
            Value::Bool(false) => Some(Vec::new()),
            _ => self.each.read(reader, entry),
        }
    }

    fn show(&self, value: &Vec<String>) -> Json {
        self.each.show(value)
    }
}

/// A list of mappings.
pub(crate) struct Sections<S>(PhantomData<S>);

impl<S> Sections<S> {
    pub(crate) const KIND: Self = Self(PhantomData);
}

impl<S: Options> Kind for Sections<S> {
    type Value = Vec<S>;

    fn form(&self) -> Form {
        Form::Sections(S::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<S>> {
        let items = reader.items(entry, "a list of mappings", "write a `-` in front of each")?;
        let what = format!("an entry of {}", quoted(&entry.key));
        let mut read = |item| Some(Fields::open(reader, S::SECTION, &what, item)?.read(reader));
        Some(items.iter().filter_map(&mut read).collect())
    }

    fn show(&self, value: &Vec<S>) -> Json {
        value
            .iter()
            .map(|section| Json::Object(section.show()))
            .collect()
    }
}
