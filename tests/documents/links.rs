//! Links between the pages, and from them to other files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::{files, lines, pages, read, root};

/// The relative links of a page: line, and what stands in parentheses.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, fence, line) in lines(text) {
        if fence.is_some() {
            continue;
        }
        let is_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
        for (at, _) in line.match_indices("](") {
            let target = &line[at + 2..];
            let target = &target[..target.find(')').unwrap_or(target.len())];
            if !is_code(at) && !target.contains("://") && !target.starts_with("mailto:") {
                links.push((number, target));
            }
        }
    }
    links
}

/// The anchors of a page, as GitHub makes them of its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, fence, line) in lines(text) {
        let heading = line.trim_start_matches('#');
        if fence.is_some() || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ if letter.is_alphanumeric() => Some(letter),
            _ => None,
        });
        let anchor = kept.collect::<String>().to_lowercase();
        let before = times.entry(anchor.clone()).or_default();
        anchors.insert(match before {
            0 => anchor,
            _ => format!("{anchor}-{before}"),
        });
        *before += 1;
    }
    anchors
}

/// A path without `..`, so that it can be compared.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The file that a link of `page` names.
fn file_of(page: &str, target: &str) -> PathBuf {
    let path = target.split('#').next().unwrap();
    match path {
        "" => PathBuf::from(page),
        path => plain(&Path::new(page).parent().unwrap().join(path)),
    }
}

/// What is wrong with the links of a page.
fn broken(page: &str, text: &str) -> Vec<String> {
    let wrong = links(text).into_iter().filter_map(|(line, target)| {
        let file = file_of(page, target);
        let (found, is_page) = (root().join(&file), file == Path::new(page));
        if !is_page && !found.exists() {
            return Some(format!("{page}:{line}: there is no {target}"));
        }
        let (_, anchor) = target.split_once('#')?;
        let has_it = match is_page {
            true => anchors(text).contains(anchor),
            false => found.is_file() && anchors(&read(file.to_str()?)).contains(anchor),
        };
        (!has_it).then(|| format!("{page}:{line}: {target} has no such heading"))
    });
    wrong.collect()
}

#[test]
fn every_link_of_every_page_leads_somewhere() {
    let pages = pages();
    let links: usize = pages.iter().map(|page| links(&read(page)).len()).sum();
    assert!(pages.len() >= 15 && links >= 60, "{links} in {pages:?}");
    let broken: Vec<String> = pages
        .iter()
        .flat_map(|page| broken(page, &read(page)))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A page that no other page names is found by nobody.
#[test]
fn every_file_of_the_examples_is_reached_from_the_readme() {
    let mut reached = BTreeSet::new();
    let mut next = vec![PathBuf::from("README.md")];
    while let Some(page) = next.pop() {
        let name = page.to_str().unwrap().to_owned();
        if reached.insert(name.clone()) && name.ends_with(".md") {
            let text = read(&name);
            next.extend(
                links(&text)
                    .iter()
                    .map(|(_, target)| file_of(&name, target)),
            );
        }
    }
    let lost: Vec<String> = files("examples")
        .into_iter()
        .chain(pages().into_iter().filter(|page| !page.starts_with('.')))
        .filter(|file| !reached.contains(file))
        .collect();
    assert!(lost.is_empty(), "no page leads to {lost:?}");
}

#[test]
fn a_link_to_no_file_or_to_no_heading_is_found() {
    let page = "\
# One
[good](../README.md#install) and [here](#one), [there](README.md), [the web](https://example.com/nowhere)
[no file](nowhere.md) and [no heading](../README.md#nowhere)
`[code](nowhere.md)`
```text
[in a block](nowhere.md)
```
[gone](gone.md), [nor here](#two)
";
    let found = broken("examples/page.md", page);
    assert_eq!(
        found,
        [
            "examples/page.md:3: there is no nowhere.md",
            "examples/page.md:3: ../README.md#nowhere has no such heading",
            "examples/page.md:8: there is no gone.md",
            "examples/page.md:8: #two has no such heading",
        ]
    );
    assert_eq!(
        anchors("# `kproxide doctor`: what, why?\n## A\n```sh\n# no heading\n```\n## A\n"),
        BTreeSet::from(["kproxide-doctor-what-why", "a", "a-1"].map(str::to_owned))
    );
}
