//! Tables that fit the terminal by truncating cells instead of wrapping them.

use unicode_width::UnicodeWidthStr as _;

use super::waterfall::fit;

/// The space between two cells.
const GAP: usize = 2;
/// Least width of a name; other columns are dropped to keep it.
const NAME: usize = 16;
/// The least width of a truncated cell, unless its column sets another.
const LEAST: usize = 8;

/// A column with its cells from top to bottom.
pub struct Column {
    heading: &'static str,
    cells: Vec<String>,
    right: bool,
    /// Least width to which cells may be truncated; `None` if they may not.
    least: Option<usize>,
}

impl Column {
    /// A column that is never truncated, with a cell for each row.
    pub fn whole<T>(heading: &'static str, rows: &[T], cell: impl FnMut(&T) -> String) -> Self {
        Self {
            heading,
            cells: rows.iter().map(cell).collect(),
            right: false,
            least: None,
        }
    }

    /// A column of text, which is truncated if the table is too wide.
    pub fn words<T>(heading: &'static str, rows: &[T], cell: impl FnMut(&T) -> String) -> Self {
        Self::whole(heading, rows, cell).at_least(LEAST)
    }

    /// A column of numbers.
    pub fn numbers<T>(heading: &'static str, rows: &[T], cell: impl FnMut(&T) -> String) -> Self {
        Self {
            right: true,
            ..Self::whole(heading, rows, cell)
        }
    }

    /// Sets the least width of a truncated cell.
    pub fn at_least(mut self, columns: usize) -> Self {
        self.least = Some(columns);
        self
    }

    /// The heading of the column.
    pub fn heading(&self) -> &'static str {
        self.heading
    }

    /// The width of the column in characters.
    pub fn width(&self) -> usize {
        self.cells
            .iter()
            .map(|cell| cell.width())
            .max()
            .unwrap_or_default()
            .max(self.heading.width())
    }
}

/// Width of the table without truncation.
pub fn width(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + GAP).sum()
}

/// Drops the columns with these headings in this order, until the rest fits with a readable name in
/// the first column.
pub fn narrow(columns: &mut Vec<Column>, dropped: &[&str], limit: usize) {
    for heading in dropped {
        let name = columns.first().map(Column::width).unwrap_or_default();
        if width(columns) - name + name.min(NAME) > limit {
            columns.retain(|column| column.heading() != *heading);
        }
    }
}

/// The table, truncated to `limit` columns as far as its columns allow.
pub fn render(columns: &[Column], limit: usize) -> String {
    let mut widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let mut over = width(columns).saturating_sub(limit);
    while over > 0 {
        // Truncate the widest column first.
        let cuttable = columns
            .iter()
            .zip(&mut widths)
            .filter(|(column, width)| column.least.is_some_and(|least| **width > least));
        let Some((_, widest)) = cuttable.max_by_key(|(_, width)| **width) else {
            break;
        };
        *widest -= 1;
        over -= 1;
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut text = String::new();
    for row in 0..=rows {
        let mut line = String::new();
        for (column, width) in columns.iter().zip(&widths) {
            let cell = match row.checked_sub(1) {
                None => column.heading,
                Some(row) => column.cells.get(row).map_or("", String::as_str),
            };
            let space = " ".repeat(width.saturating_sub(cell.width()));
            line.push(' ');
            line += &match column.right {
                true => space + cell,
                false if cell.width() > *width => fit(cell, *width),
                false => cell.to_owned() + &space,
            };
            line.push(' ');
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// A table of rows that are never truncated.
pub fn render_rows<const N: usize>(headings: [&'static str; N], rows: &[[String; N]]) -> String {
    let column =
        |(index, heading): (usize, _)| Column::whole(heading, rows, |row| row[index].clone());
    let columns: Vec<_> = headings.into_iter().enumerate().map(column).collect();
    render(&columns, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let long = "a-name-that-is-much-too-long-for-any-table";
        vec![
            Column::words("NAME", &[long, "b"], |name| (*name).to_owned()),
            Column::numbers("COUNT", &[7, 1000], u16::to_string),
            Column::whole("ID", &["4bf92f3577b34da6", "00"], |id| (*id).to_owned()),
            Column::words("WHAT", &[long, "漢字"], |what| (*what).to_owned()),
        ]
    }

    #[test]
    fn render_truncates_words_only() {
        let all = columns();
        assert!(render(&all, width(&all)).contains("too-long-for-any-table"));
        for room in [60, 80, 100] {
            let text = render(&all, room);
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(text.lines().all(|line| line.width() <= room), "{text}");
            assert!(
                text.contains("4bf92f3577b34da6") && text.contains("1000") && text.contains('…'),
                "{text}"
            );
        }
        // The least possible width.
        assert!(render(&all, 10).lines().all(|line| line.width() <= 60));
    }
}
