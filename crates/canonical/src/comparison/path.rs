//! Places in JSON texts, as JSON Pointers (RFC 6901).

use fanlight_protocol::json::pointer_step;

/// The current place of a comparison.
pub(super) struct Path {
    pub(super) pointer: String,
    /// The pointer with `*` for the numbers of items.
    pub(super) place: String,
}

impl Path {
    pub(super) fn from_pointer(pointer: &str) -> Self {
        let (pointer, place) = (pointer.to_owned(), pointer.to_owned());
        Self { pointer, place }
    }

    pub(super) fn push_member(&mut self, name: &str) {
        let step = pointer_step(name);
        self.pointer += &step;
        self.place += &step;
    }

    pub(super) fn push_item(&mut self, index: usize) {
        self.pointer += &format!("/{index}");
        self.place += "/*";
    }

    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.pointer.len(), self.place.len())
    }

    pub(super) fn truncate(&mut self, (pointer, place): (usize, usize)) {
        self.pointer.truncate(pointer);
        self.place.truncate(place);
    }
}

/// Whether `pointer` is at `place`, in which `*` stands for the number of an item, or below it.
pub(super) fn is_at(place: &str, pointer: &str) -> bool {
    let mut steps = pointer.split('/');
    place.split('/').all(|wanted| {
        steps.next().is_some_and(|step| {
            let is_number = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
            step == wanted || (wanted == "*" && is_number)
        })
    })
}
