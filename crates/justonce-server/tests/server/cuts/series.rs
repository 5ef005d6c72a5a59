//! Series of cases: the same exchange, cut after 0 bytes, after 1, and so on until it is whole.

use crate::cuts::line::{Cut, Direction, End};
use crate::cuts::service::Form;

/// How often a cut before the first byte is repeated: what crosses it differs.
const BEFORE: usize = 25;

/// What the cases of a series have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) form: Form,
    /// Nothing for cuts before the first byte.
    pub(crate) direction: Option<Direction>,
    pub(crate) end: End,
    /// Whether the connection has carried another exchange before.
    pub(crate) reuses: bool,
}

/// Every so many bytes of a series, for one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) series: Series,
    pub(crate) first: usize,
    pub(crate) step: usize,
}

impl Series {
    /// Everything that is cut, for responses of these forms.
    pub(crate) fn all(forms: &[Form]) -> Vec<Self> {
        let mut all = Vec::new();
        for end in [End::Closed, End::Reset] {
            for reuses in [false, true] {
                let of = |form, direction| Self { form, direction, end, reuses };
                all.push(of(Form::Length, None));
                all.push(of(Form::Length, Some(Direction::Request)));
                all.extend(forms.iter().map(|form| of(*form, Some(Direction::Response))));
            }
        }
        all
    }

    /// The series in parts that several lanes can work on.
    pub(crate) fn parts(self, count: usize) -> impl Iterator<Item = Part> {
        (0..count).map(move |first| Part { series: self, first, step: count })
    }

    /// The cut number so many of this series, if it has one.
    pub(crate) fn cut(&self, number: usize) -> Option<Cut> {
        match self.direction {
            Some(direction) => Some(Cut::After(direction, number, self.end)),
            None => (number < BEFORE).then_some(Cut::Before(self.end)),
        }
    }

    /// Its name, as a part of keys.
    pub(crate) fn name(&self) -> String {
        let what = match self.direction {
            None => "before",
            Some(Direction::Request) => "request",
            Some(Direction::Response) => self.form.name(),
        };
        let end = if self.end == End::Closed { "closed" } else { "reset" };
        let connection = if self.reuses { "used" } else { "new" };
        format!("{what}-{end}-{connection}")
    }
}
