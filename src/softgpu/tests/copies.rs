//! Copies of each class, and what they leave in memory.

use std::time::{Duration, Instant};

use super::commands::*;
use super::recorder::*;
use super::rig::*;
use gpuvmk_chip::Engine;
use gpuvmk_chip::gf100::methods::{self, m2mf, pcopy, query};

const SRC: u64 = 0x4000_0000;
const DST: u64 = 0x5000_0000;

#[test]
fn m2mf_copies_pages_that_lie_scattered() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let (from, to) = (rig.alloc(0x10_000), rig.alloc(0x10_000));
    let data = pattern(1, 0x10_000);
    rig.write(from, &data);
    for page in 0..16 {
        rig.map(&mut space, SRC + page * 0x1000, vram(from + page * 0x1000), 0x1000);
        rig.map(&mut space, DST + page * 0x1000, vram(to + (15 - page) * 0x1000), 0x1000);
    }

    rig.run(&mut channel, &m2mf_copy(SRC, DST, 0x1000, 0x1000, 16));

    for page in 0..16usize {
        let got = rig.read(to + (15 - page as u64) * 0x1000, 0x1000);
        assert!(got == data[page * 0x1000..][..0x1000], "page {page}");
    }
}

#[test]
fn copies_go_between_vram_and_system_memory_on_every_engine() {
    let rig = Rig::new();
    let size = 0x20_000;
    let memory = rig.system_memory(0x8000_0000, 2 * size);
    for (number, copy) in [(1, None), (2, Some(pcopy::CLASS_COPY0)), (3, Some(pcopy::CLASS_COPY1))] {
        let mut space = rig.space();
        let mut channel = rig.channel(number, &mut space);
        let middle = rig.alloc(size);
        rig.map(&mut space, SRC, system(0x8000_0000), 2 * size);
        rig.map_pages(&mut space, DST, vram(middle), size, 17, PageFlags::default());
        let data = pattern(u32::from(number), size as usize);
        memory.write(0, &data).unwrap();
        let copy = |from, to| match copy {
            None => m2mf_copy(from, to, 0x800, 0x800, 64),
            Some(class) => pcopy_copy(class, from, to, 0x800, 0x800, 64),
        };

        let words = [copy(SRC, DST), copy(DST, SRC + size)].concat();
        rig.run(&mut channel, &words);

        assert!(rig.read(middle, size as usize) == data);
        let mut got = vec![0; size as usize];
        memory.read(size, &mut got).unwrap();
        assert!(got == data, "channel {number}");
    }
}

#[test]
fn pitches_leave_what_lies_between_lines() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let memory = rig.alloc(0x4000);
    rig.map(&mut space, SRC, vram(memory), 0x4000);
    let data = pattern(3, 0x4000);
    rig.write(memory, &data);

    let mut words = m2mf_copy(SRC, SRC + 0x2000, 0, 0x30, 5);
    words.splice(words.len() - 2.., inc(2, m2mf::PITCH_IN, &[0x100, 0x40]));
    words.extend(inc(2, m2mf::EXEC, &[0x110]));
    rig.run(&mut channel, &words);

    let got = rig.read(memory + 0x2000, 0x140);
    for line in 0..5 {
        assert_eq!(got[line * 0x40..][..0x30], data[line * 0x100..][..0x30]);
        assert_eq!(got[line * 0x40 + 0x30..][..0x10], data[0x2030 + line * 0x40..][..0x10]);
    }
}

#[test]
fn line_of_zeros_that_is_copied_again_and_again_zeroes_its_target_and_nothing_else() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(2, &mut space);
    let (from, to, size) = (rig.alloc(0x8000), rig.alloc(0x40_0000), 0x40_0000);
    rig.map(&mut space, SRC, vram(from), 0x8000);
    // Pages that lie scattered, and one of system memory among them.
    let memory = rig.system_memory(0x8000_0000, 0x1_0000);
    memory.write(0, &pattern(9, 0x1_0000)).unwrap();
    for page in 0..0x400_u64 {
        let target = match page {
            0x100 => system(0x8000_4000),
            0x200..0x300 => vram(to + (0x4ff - page) * 0x1000),
            _ => vram(to + page * 0x1000),
        };
        rig.map(&mut space, DST + page * 0x1000, target, 0x1000);
    }
    let data = pattern(5, size);
    for (line, zeroes) in [(0, true), (0x1234, false)] {
        rig.write(from, &vec![0; 0x8000]);
        rig.write(from + 0x7fff, &[u8::from(line > 0)]);
        rig.write(to, &data);

        // 100 lines from an odd place on.
        let mut words = pcopy_copy(pcopy::CLASS_COPY1, SRC, DST + 0x0ffe_1234 % 0x2000, 0x8000, 0x8000, 100);
        words.splice(words.len() - 2.., inc(4, pcopy::SRC_PITCH, &[0]));
        words.extend(inc(4, pcopy::EXEC, &[0x110]));
        rig.run(&mut channel, &words);

        let start = 0x0ffe_1234 % 0x2000;
        let seen = |at: usize| {
            let page = at >> 12;
            match page {
                0x100 => None,
                0x200..0x300 => Some((0x4ff - page) << 12 | at & 0xfff),
                _ => Some(at),
            }
        };
        let got = rig.read(to, size);
        for at in (0..size).filter(|at| at & 0xff0 == 0 || at & 0xff0 == 0xff0) {
            let Some(place) = seen(at) else { continue };
            let inside = (start..start + 100 * 0x8000).contains(&at);
            let last = (at.wrapping_sub(start)) % 0x8000 == 0x7fff;
            let expected = if inside { u8::from(!zeroes && last) } else { data[place] };
            assert_eq!(got[place], expected, "{at:#x} {zeroes}");
        }
        let mut page = vec![0; 0x1_0000];
        memory.read(0, &mut page).unwrap();
        assert!(page[0x4000..0x4fff].iter().filter(|byte| **byte != 0).count() <= 1);
        assert!(page[0x5000..] == pattern(9, 0x1_0000)[0x5000..]);
    }
}

#[test]
fn inline_words_are_written_up_to_the_last_byte() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let memory = rig.alloc(0x2000);
    rig.map(&mut space, DST, vram(memory), 0x2000);
    rig.write(memory, &[0xee; 0x2000]);
    let to = DST + 0xff8;
    let mut words = inc(2, 0, &[u32::from(m2mf::CLASS)]);
    words.extend(inc(2, m2mf::OFFSET_OUT_HIGH, &[hi(to), lo(to)]));
    words.extend(inc(2, m2mf::LINE_LENGTH_IN, &[10, 1]));
    words.extend(inc(2, m2mf::EXEC, &[m2mf::EXEC::PUSH.mask() | 0x110]));
    words.extend(fixed(2, m2mf::DATA, &[0x0403_0201, 0x0807_0605, 0x0c0b_0a09]));

    rig.run(&mut channel, &words);

    assert_eq!(rig.read(memory + 0xff8, 12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0xee, 0xee]);
}

#[test]
fn tiled_and_back_is_the_same_picture() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let (picture, tiled, back) = (rig.alloc(0x10_000), rig.alloc(0x10_000), rig.alloc(0x10_000));
    let [a, b, c] = [SRC, SRC + 0x10_000, SRC + 0x20_000];
    for (va, memory) in [(a, picture), (b, tiled), (c, back)] {
        rig.map(&mut space, va, vram(memory), 0x10_000);
    }
    let data = pattern(4, 300 * 100);
    rig.write(picture, &data);
    let shape = [0x10, 300, 100, 1, 0];
    let mut words = inc(2, 0, &[u32::from(m2mf::CLASS)]);
    words.extend(inc(2, m2mf::TILING_MODE_IN, &shape));
    words.extend(inc(2, m2mf::TILING_MODE_OUT, &shape));
    words.extend(inc(2, m2mf::OFFSET_OUT_HIGH, &[hi(b), lo(b)]));
    words.extend(inc(2, m2mf::OFFSET_IN_HIGH, &[hi(a), lo(a), 300, 300, 300, 100]));
    words.extend(inc(2, m2mf::EXEC, &[m2mf::EXEC::LINEAR_IN.mask()]));
    // Back on a copy engine: both must agree on the layout.
    words.extend(inc(4, 0, &[u32::from(pcopy::CLASS_COPY0)]));
    words.extend(inc(4, pcopy::SRC_TILE_MODE, &[0x10, 300, 100, 1, 0, 0, 0]));
    words.extend(inc(4, 0x30c, &[hi(b), lo(b), hi(c), lo(c), 300, 300, 300, 100]));
    words.extend(inc(4, 0x300, &[pcopy::EXEC::DST_LINEAR.mask()]));

    rig.run(&mut channel, &words);

    assert!(rig.read(back, data.len()) == data);
    assert!(rig.read(tiled, data.len()) != data);
    assert_eq!(rig.read(tiled + 64, 64), data[300..364]);
}

#[test]
fn reports_follow_copies_and_queries() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let memory = rig.alloc(0x1000);
    rig.map(&mut space, SRC, vram(memory), 0x1000);
    let mut words = m2mf_copy(SRC, SRC + 0x800, 16, 16, 1);
    words.extend(inc(2, m2mf::QUERY_ADDRESS_HIGH, &[hi(SRC), lo(SRC) + 0x100, 0x1234]));
    words.extend(inc(2, m2mf::EXEC, &[0x110 | 2 << 12 | 1 << 16 | m2mf::EXEC::QUERY_SHORT.mask()]));
    words.extend(inc(0, 0, &[u32::from(methods::CLASS_3D)]));
    words.extend(inc(0, query::ADDRESS_HIGH, &[hi(SRC), lo(SRC) + 0x200, 0x5678, 0x1000_f010]));
    words.extend(inc(0, query::ADDRESS_HIGH, &[hi(SRC), lo(SRC) + 0x210, 0x9abc, 0x0000_f010]));
    words.extend(inc(4, 0, &[u32::from(pcopy::CLASS_COPY1)]));
    words.extend(inc(4, pcopy::QUERY_ADDRESS_HIGH, &[hi(SRC), lo(SRC) + 0x300, 0xdef0]));
    words.extend(inc(4, 0x300, &[0x110 | pcopy::EXEC::QUERY.mask()]));

    rig.run(&mut channel, &words);

    assert_eq!(rig.read_u32(memory + 0x100), 0x1234);
    assert_eq!(rig.read_u32(memory + 0x108), 0);
    assert_eq!(rig.read_u32(memory + 0x200), 0x5678);
    assert_eq!(rig.read_u64(memory + 0x208), 0);
    assert_eq!(rig.read_u32(memory + 0x210), 0x9abc);
    assert_ne!(rig.read_u64(memory + 0x218), 0);
    assert_eq!(rig.read_u32(memory + 0x300), 0xdef0);
    assert!(rig.read_u64(memory + 0x308) >= rig.read_u64(memory + 0x218));
    assert!(rig.events.all().contains(&Event::NonStall(Engine::Graphics)));
}

#[test]
fn header_goes_on_in_the_next_entry() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let memory = rig.alloc(0x1000);
    rig.map(&mut space, SRC, vram(memory), 0x1000);
    let words = semaphore(SRC + 0x40, 77, 0x100_0002);
    for part in [&words[..1], &words[1..3]] {
        rig.prepare(&mut channel, part);
    }
    rig.prepare_entry(&mut channel, 0);
    rig.submit(&mut channel, &words[3..]);

    rig.wait_done(&channel);

    assert_eq!(rig.read_u32(memory + 0x40), 77);
}

#[test]
fn engines_work_at_the_same_time_and_none_is_lost() {
    let rig = Rig::with_vram(128 << 20);
    let size = 4u64 << 20;
    let mut channels = Vec::new();
    for (number, class) in [(1, None), (2, Some(pcopy::CLASS_COPY0)), (3, Some(pcopy::CLASS_COPY1))] {
        let mut space = rig.space();
        let channel = rig.channel(number, &mut space);
        let (from, to) = (rig.alloc(size), rig.alloc(size));
        rig.map_pages(&mut space, SRC, vram(from), size, 17, PageFlags::default());
        rig.map_pages(&mut space, DST, vram(to), size, 17, PageFlags::default());
        let data = pattern(u32::from(number), size as usize);
        rig.write(from, &data);
        channels.push((channel, class, to, data));
    }

    for _ in 0..4 {
        for (channel, class, ..) in &mut channels {
            let words = match class {
                None => m2mf_copy(SRC, DST, 0x1000, 0x1000, 1024),
                Some(class) => pcopy_copy(*class, SRC, DST, 0x1000, 0x1000, 1024),
            };
            rig.submit(channel, &words);
        }
    }

    for (channel, _, to, data) in &channels {
        rig.wait_done(channel);
        assert!(rig.read(*to, size as usize) == *data, "channel {}", channel.number);
    }
}

/// Not a benchmark: a copy that is slow by an order of magnitude has a fault.
#[test]
fn copies_run_at_memory_speed() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let size = 16u64 << 20;
    let _memory = rig.system_memory(0x8000_0000, size);
    let from = rig.alloc(size);
    rig.map_pages(&mut space, SRC, vram(from), size, 17, PageFlags::default());
    rig.map(&mut space, DST, system(0x8000_0000), size);
    let words = m2mf_copy(SRC, DST, 0x1000, 0x1000, 2047);
    rig.run(&mut channel, &words);

    // The shortest of several turns of either, one after the other: a busy machine slows both.
    let (plain, mut copy) = (vec![7_u8; 2047 * 4096], vec![0_u8; 2047 * 4096]);
    let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
    for _ in 0..16 {
        let start = Instant::now();
        rig.submit(&mut channel, &words);
        rig.wait_done(&channel);
        ours = ours.min(start.elapsed());
        let start = Instant::now();
        copy.copy_from_slice(std::hint::black_box(&plain));
        std::hint::black_box(&mut copy);
        theirs = theirs.min(start.elapsed());
    }
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("{ours:?}, {ratio:.1} of what the processor takes");
    assert!(ratio < 10.0, "{ours:?}, {theirs:?}");
}
