//! Breaks long lines between words: the reason at the end of a line is what one looks for.

/// Lines of at most `width` characters, those after the first indented. A word that is longer than a line is cut.
pub(super) fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    // Where there is hardly room, indenting would leave none.
    let indent = if width > 2 * indent { indent } else { 0 };
    let mut lines = vec![String::new()];
    let mut taken = 0;
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if taken + length > width && taken > indent {
            lines.push(" ".repeat(indent));
            taken = indent;
        }
        for character in word.chars() {
            if taken >= width {
                if character == ' ' {
                    continue;
                }
                lines.push(" ".repeat(indent));
                taken = indent;
            }
            if let Some(line) = lines.last_mut() {
                line.push(character);
            }
            taken += 1;
        }
    }
    lines
        .into_iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, width: usize, indent: usize, expected: &[&str]) {
        assert_eq!(wrap(text, width, indent), expected);
    }

    #[test]
    fn lines_break_between_words_and_go_on_indented() {
        check("short", 20, 4, &["short"]);
        check(
            "01:02  a reason that is long",
            14,
            4,
            &["01:02  a", "    reason", "    that is", "    long"],
        );
    }

    #[test]
    fn a_word_longer_than_the_line_is_cut() {
        check("sha256:0123456789", 10, 2, &["sha256:012", "  3456789"]);
    }

    #[test]
    fn a_word_that_just_fits_stays() {
        check("four five", 9, 2, &["four five"]);
        check("four fives", 9, 2, &["four", "  fives"]);
    }

    #[test]
    fn no_width_at_all_loses_nothing_but_the_shape() {
        check("ab", 1, 4, &["a", "b"]);
    }
}
