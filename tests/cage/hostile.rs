//! Files that no policy directory should hold, made here: each ends a process that reads it carelessly, or fills its memory, or takes its time.

use std::io::Write as _;

/// Name and bytes of each. `good` is a policy, from which some are made.
pub(crate) fn files(good: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>| files.push((name, bytes));

    // The reader goes into each level.
    for levels in [1_000, 20_000, 100_000] {
        add(
            format!("nested-component-types-{levels}"),
            nested_types(&[0x41], levels),
        );
        add(
            format!("nested-instance-types-{levels}"),
            nested_types(&[0x42], levels),
        );
        add(
            format!("nested-types-{levels}"),
            nested_types(&[0x41, 0x42], levels),
        );
    }
    for levels in [1_000, 20_000] {
        add(
            format!("nested-components-{levels}"),
            nested_components(levels),
        );
    }
    // Twice as many of everything at each level.
    for depth in [12, 20, 30, 60] {
        add(
            format!("instantiated-twice-{depth}"),
            instantiated_twice(depth),
        );
    }

    // What the compiler takes long for, or much memory.
    add(
        "loops-and-locals".to_owned(),
        compiled(&loops(4_000, 4_000)),
    );
    add(
        "memory-fill".to_owned(),
        compiled(&repeated(&FILL, 200_000, &[])),
    );
    add(
        "loads-and-stores".to_owned(),
        compiled(&repeated(&LOAD_AND_STORE, 320_000, &[])),
    );
    add(
        "many-locals".to_owned(),
        compiled(&repeated(&[], 0, &[(1_000_000, 0x7f)])),
    );
    add(
        "nested-blocks".to_owned(),
        compiled(&nested_blocks(100_000)),
    );
    add("wide-br-table".to_owned(), compiled(&wide_table(500_000)));
    add(
        "many-functions".to_owned(),
        core_of(&many_functions(10_000)),
    );
    add(
        "many-memories".to_owned(),
        core_of(&section(5, &vector(&vec![vec![0, 1]; 1_000]))),
    );
    add(
        "largest-memory".to_owned(),
        core_of(&section(5, &[&[1, 0][..], &leb(65_536)].concat())),
    );
    add(
        "largest-table".to_owned(),
        core_of(&section(4, &[&[1, 0x70, 0][..], &leb(u32::MAX)].concat())),
    );
    add(
        "many-types".to_owned(),
        core_of(&section(1, &vector(&vec![vec![0x60, 0, 0]; 200_000]))),
    );

    // What unpacks to more than it says.
    add(
        "zstd-window-2-gib".to_owned(),
        zstd(&[0x00, 21 << 3], 8_192),
    );
    add(
        "zstd-content-2-gib".to_owned(),
        zstd(&[0xa0, 0, 0, 0, 0x80], 8_192),
    );
    add("zstd-bomb".to_owned(), zstd(&[0x00, 7 << 3], 8_192));
    add("zstd-cut".to_owned(), zstd(&[0x00, 7 << 3], 0));
    add("gzip-bomb".to_owned(), gzip(&vec![0; 256 << 20]));
    add("gzip-cut".to_owned(), gzip(good)[..good.len() / 5].to_vec());
    add("gzip-twice".to_owned(), gzip(&gzip(good)));
    add(
        "gzip-of-nested-types".to_owned(),
        gzip(&nested_types(&[0x41], 1_000_000)),
    );

    // What is no component at all.
    add("empty".to_owned(), Vec::new());
    add("page".to_owned(), b"<html>404</html>".to_vec());
    add("core-module".to_owned(), b"\0asm\x01\0\0\0".to_vec());
    add("nothing-in-it".to_owned(), component(&[]));
    add("half-a-policy".to_owned(), good[..good.len() / 2].to_vec());
    add(
        "padded".to_owned(),
        [
            &component(&[]),
            &section(0, &[&name("x")[..], &vec![0; 20 << 20]].concat())[..],
        ]
        .concat(),
    );
    add("too-big".to_owned(), vec![0; (32 << 20) + 1]);
    // A vector of four thousand million, in each kind of section.
    for id in 1..12 {
        add(
            format!("endless-section-{id}"),
            component(&section(id, &leb(u32::MAX))),
        );
    }
    for ninth in 1..6 {
        let mut overwritten = good.to_vec();
        let at = good.len() * ninth / 9;
        overwritten[at..at + 16].fill(0xff);
        add(format!("overwritten-{ninth}"), overwritten);
    }
    for ninth in [1, 4, 8] {
        add(
            format!("cut-{ninth}"),
            good[..good.len() * ninth / 9].to_vec(),
        );
    }

    // What wants more than a policy gets, or is of another version.
    for import in [
        "wasi:sockets/tcp@0.2.6",
        "wasi:clocks/wall-clock@0.2.6",
        "wasi:random/random@0.2.6",
        "acme:racks/table",
        "kproxide:policy/log@0.2.0",
    ] {
        let plain = import.replace([':', '/', '@', '.'], "-");
        add(format!("imports-{plain}"), importing(import));
    }
    add(
        "exports-labels-0-2".to_owned(),
        exporting("kproxide:policy/labels@0.2.0"),
    );
    add(
        "exports-nothing-of-labels".to_owned(),
        exporting("kproxide:policy/labels@0.1.0"),
    );
    files
}

/// A component of a component type of a component type, and so on, each level of the next of these kinds.
fn nested_types(kinds: &[u8], levels: usize) -> Vec<u8> {
    let mut types = vec![1];
    for level in 0..levels {
        // One declaration: a type.
        types.extend([kinds[level % kinds.len()], 1, 1]);
    }
    // The innermost is `u32`.
    types.push(0x79);
    component(&section(7, &types))
}

fn nested_components(levels: usize) -> Vec<u8> {
    // From within outwards the lengths are known first.
    let mut around = Vec::new();
    let mut length = 8;
    for _ in 0..levels {
        let prefix = [&[4][..], &leb(length)].concat();
        length += 8 + prefix.len() as u32;
        around.push(prefix);
    }
    let mut bytes = component(&[]);
    for prefix in around.iter().rev() {
        bytes.extend(prefix);
        bytes.extend(component(&[]));
    }
    bytes
}

/// Each component holds the one before it, and instantiates it twice. The innermost has a core instance with a memory.
fn instantiated_twice(depth: usize) -> Vec<u8> {
    let memory = section(5, &[1, 0, 1]);
    let instance = section(2, &[1, 0x00, 0, 0]);
    let core = section(1, &[b"\0asm\x01\0\0\0", &memory[..]].concat());
    let mut bytes = component(&[core, instance].concat());
    for _ in 0..depth {
        let inner = section(4, &bytes);
        let twice = section(5, &[2, 0x00, 0, 0, 0x00, 0, 0]);
        bytes = component(&[inner, twice].concat());
    }
    bytes
}

// i32.const 0, i32.const 0, i32.const 9, memory.fill 0
const FILL: [u8; 9] = [0x41, 0, 0x41, 0, 0x41, 9, 0xfc, 0x0b, 0];
// i32.const 0, i32.const 0, i32.load, i32.store
const LOAD_AND_STORE: [u8; 10] = [0x41, 0, 0x41, 0, 0x28, 2, 0, 0x36, 2, 0];
const END: u8 = 0x0b;

/// The body of a function: locals as pairs of count and type, and code.
fn body(locals: &[(u32, u8)], code: &[u8]) -> Vec<u8> {
    let locals: Vec<Vec<u8>> = locals
        .iter()
        .map(|(count, kind)| [&leb(*count)[..], &[*kind]].concat())
        .collect();
    [&vector(&locals)[..], code, &[END]].concat()
}

fn repeated(code: &[u8], times: usize, locals: &[(u32, u8)]) -> Vec<u8> {
    body(locals, &code.repeat(times))
}

fn loops(count: u32, locals: u32) -> Vec<u8> {
    let mut code = Vec::new();
    for at in 0..count {
        let local = leb(at % locals);
        // loop; local.get; i32.const 1; i32.add; local.tee; br_if 0; end
        code.extend([0x03, 0x40, 0x20]);
        code.extend(&local);
        code.extend([0x41, 1, 0x6a, 0x22]);
        code.extend(&local);
        code.extend([0x0d, 0, END]);
    }
    body(&[(locals, 0x7f)], &code)
}

fn nested_blocks(depth: usize) -> Vec<u8> {
    body(
        &[],
        &[[0x02, 0x40].repeat(depth), vec![END; depth]].concat(),
    )
}

fn wide_table(targets: u32) -> Vec<u8> {
    let table = [
        &[0x41, 0, 0x0e][..],
        &leb(targets),
        &vec![0; targets as usize + 1],
    ]
    .concat();
    body(&[], &table)
}

/// A component with a core module of one function, with this body.
fn compiled(body: &[u8]) -> Vec<u8> {
    let sections = [
        section(1, &[1, 0x60, 0, 0]),
        section(3, &[1, 0]),
        section(5, &[1, 0, 1]),
        section(10, &vector(&[sized(body)])),
    ];
    core_of(&sections.concat())
}

fn many_functions(count: usize) -> Vec<u8> {
    let code = repeated(&LOAD_AND_STORE, 20, &[]);
    let sections = [
        section(1, &[1, 0x60, 0, 0]),
        section(3, &vector(&vec![vec![0]; count])),
        section(5, &[1, 0, 1]),
        section(10, &vector(&vec![sized(&code); count])),
    ];
    sections.concat()
}

fn core_of(sections: &[u8]) -> Vec<u8> {
    component(&section(1, &[b"\0asm\x01\0\0\0", sections].concat()))
}

fn importing(interface: &str) -> Vec<u8> {
    let import = [&[1, 0x00][..], &name(interface), &[0x05, 0]].concat();
    component(&[section(7, &[1, 0x42, 0]), section(10, &import)].concat())
}

fn exporting(interface: &str) -> Vec<u8> {
    let export = [&[1, 0x00][..], &name(interface), &[0x05, 0, 0]].concat();
    component(&[section(5, &[1, 0x01, 0]), section(11, &export)].concat())
}

fn component(sections: &[u8]) -> Vec<u8> {
    [b"\0asm\x0d\0\x01\0", sections].concat()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &sized(content)].concat()
}

fn sized(content: &[u8]) -> Vec<u8> {
    [&leb(content.len() as u32)[..], content].concat()
}

fn vector(items: &[Vec<u8>]) -> Vec<u8> {
    [&leb(items.len() as u32)[..], &items.concat()].concat()
}

fn name(text: &str) -> Vec<u8> {
    sized(text.as_bytes())
}

fn leb(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A frame with this header, of so many blocks of 128 KiB of zeros each.
fn zstd(header: &[u8], blocks: usize) -> Vec<u8> {
    // A block that repeats one byte, and is not the last.
    let size = ((128_u32 << 10) << 3 | 1 << 1).to_le_bytes();
    let block = [&size[..3], &[0]].concat();
    [&[0x28, 0xb5, 0x2f, 0xfd], header, &block.repeat(blocks)].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
