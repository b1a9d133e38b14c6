use super::rig::*;
use gpuvmk_chip::gh100::methods::copy;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::{GpuDriver as _, GpuDriverExt as _};

const SRC: u64 = 0x30_0000_0000;
const DST: u64 = 0x31_0000_0000;
const SIZE: u64 = 1 << 20;

/// A copy channel with a source and a target; their VRAM addresses.
fn setup(rig: &mut Rig, engines: EngineSet) -> (Channel, u64, u64) {
    let space = rig.space();
    let channel = rig.channel(space, engines);
    let source = rig.buffer(space, SRC, SIZE);
    let target = rig.buffer(space, DST, SIZE);
    (channel, source, target)
}

#[test]
fn lines_are_copied_on_every_engine() {
    for engines in [EngineSet::COPY1, EngineSet::COPY2, graphics()] {
        let mut rig = Rig::new();
        let (mut channel, source, target) = setup(&mut rig, engines);
        rig.write(source, &pattern(1, SIZE as usize));

        let words = [bind_copy(), copy_lines(SRC, DST, 4096, 4000, 256, 0)].concat();
        rig.run(&mut channel, &words);

        let (from, to) = (rig.read(source, SIZE as usize), rig.read(target, SIZE as usize));
        for line in 0..256 {
            let start = line * 4096;
            assert_eq!(to[start..start + 4000], from[start..start + 4000], "{engines:?} line {line}");
            assert!(to[start + 4000..start + 4096].iter().all(|&byte| byte == 0));
        }
        assert!(rig.errors().is_empty(), "{:?}", rig.events);
    }
}

#[test]
fn copies_reach_system_memory_and_back() {
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    let memory = rig.system_memory(0x1_8000_0000, SIZE);
    let space = channel.space;
    rig.update(space, &[], &[mapping(0x3f_0000_0000, SIZE, 16, system(0x1_8000_0000))]);
    rig.write(source, &pattern(7, SIZE as usize));

    let out = copy_lines(SRC, 0x3f_0000_0000, 0, SIZE as u32, 1, 0);
    let back = copy_lines(0x3f_0000_0000, DST, 0, SIZE as u32, 1, 0);
    rig.run(&mut channel, &[bind_copy(), out, back].concat());

    let mut bytes = vec![0; SIZE as usize];
    memory.read(0, &mut bytes).unwrap();
    assert!(bytes == pattern(7, SIZE as usize) && rig.read(target, SIZE as usize) == bytes);
}

#[test]
fn addresses_of_57_bits_are_reached() {
    let mut rig = Rig::new();
    let (mut channel, source, _) = setup(&mut rig, EngineSet::COPY1);
    let far = (1 << 57) - (1 << 21);
    let target = rig.alloc(1 << 21);
    rig.update(channel.space, &[], &[mapping(far, 1 << 21, 21, vram(target))]);
    rig.write(source, &pattern(3, 4096));

    rig.run(&mut channel, &copy_lines(SRC, far + 0x1f_f000, 0, 4096, 1, 0));

    assert_eq!(rig.read(target + 0x1f_f000, 4096), pattern(3, 4096));
}

#[test]
fn one_line_is_copied_without_multi_line() {
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    rig.write(source, &pattern(1, 8192));

    let mut words = copy_lines(SRC, DST, 4096, 4096, 2, 0);
    *words.last_mut().unwrap() &= !copy::LAUNCH_DMA::MULTI_LINE_ENABLE.mask();
    rig.run(&mut channel, &words);

    assert_eq!(rig.read(target, 4096), pattern(1, 4096));
    assert_eq!(rig.read_u32(target + 4096), 0);
}

#[test]
fn semaphore_of_a_launch_follows_its_data() {
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    rig.write(source, &pattern(9, 64));
    let sem = |offset: u64, payload: u64| {
        inc(4, copy::SET_SEMAPHORE_A, &[hi(DST + offset), lo(DST + offset), lo(payload), hi(payload)])
    };
    let one =
        copy::LAUNCH_DMA::SEMAPHORE_TYPE.of(copy::LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_ONE_WORD_SEMAPHORE);
    let four =
        copy::LAUNCH_DMA::SEMAPHORE_TYPE.of(copy::LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_FOUR_WORD_SEMAPHORE);
    let wide = copy::LAUNCH_DMA::SEMAPHORE_PAYLOAD_SIZE.mask();
    let reduce = copy::LAUNCH_DMA::SEMAPHORE_REDUCTION_ENABLE.mask()
        | copy::LAUNCH_DMA::SEMAPHORE_REDUCTION.of(5)
        | copy::LAUNCH_DMA::SEMAPHORE_REDUCTION_SIGN.mask();

    let words = [
        sem(0x1000, 0x1_0000_0001),
        copy_lines(SRC, DST, 0, 64, 1, one),
        sem(0x1010, 0x1_0000_0002),
        copy_lines(SRC, DST, 0, 64, 1, four),
        sem(0x1020, 0x1_0000_0003),
        copy_lines(SRC, DST, 0, 64, 1, four | wide),
        sem(0x1020, 0x10),
        // Nothing but the semaphore.
        inc(4, copy::LAUNCH_DMA, &[one | wide | reduce]),
    ];
    rig.run(&mut channel, &words.concat());

    assert_eq!(rig.read(target, 64), pattern(9, 64));
    assert_eq!(rig.read_u64(target + 0x1000), 1);
    assert_eq!(rig.read_u64(target + 0x1010), 2);
    assert_eq!(rig.read_u64(target + 0x1020), 0x1_0000_0013);
    let times = [0x1018, 0x1028].map(|offset| rig.read_u64(target + offset));
    assert!(0 < times[0] && times[0] <= times[1], "{times:?}");
}

#[test]
fn interrupt_of_a_launch_names_its_engine() {
    for (engines, engine) in [(graphics(), Engine::COPY0), (EngineSet::COPY2, Engine::COPY2)] {
        let mut rig = Rig::new();
        let (mut channel, ..) = setup(&mut rig, engines);
        rig.run(&mut channel, &copy_lines(SRC, DST, 0, 64, 1, 2 << 5));
        let wanted = gpuvmk_gpu::GpuEvent::NonStall(engine);
        rig.wait_event(|event| (*event == wanted).then_some(()));
    }
}

/// Address in a block-linear surface one GOB wide a block, by the definition of the layout.
fn blocks_offset(x: u64, y: u64, z: u64, width: u64, height: u64, log2: (u32, u32)) -> u64 {
    let (lines, depth) = (8u64 << log2.0, 1u64 << log2.1);
    let (across, down) = (width.div_ceil(64), height.div_ceil(lines));
    let block = (z / depth * down + y / lines) * across + x / 64;
    let gob = ((z % depth) << log2.0) + y % lines / 8;
    let sector = [[0, 2, 8, 10], [1, 3, 9, 11], [4, 6, 12, 14], [5, 7, 13, 15]];
    let sector = sector[(y % 8 / 2) as usize][(x % 64 / 16) as usize];
    block * (512 << (log2.0 + log2.1)) + gob * 512 + sector * 32 + y % 2 * 16 + x % 16
}

#[test]
fn blocks_are_written_and_read() {
    let (width, height, log2) = (200, 40, (1, 1));
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    rig.write(source, &pattern(5, 4096));
    let shape = [log2.1 << 8 | log2.0 << 4 | 1 << 12, width, height, 4];
    let rectangle = inc(4, copy::LINE_LENGTH_IN, &[50, 20]);
    let words = [
        inc(4, copy::OFFSET_IN_UPPER, &[hi(SRC), lo(SRC), hi(DST), lo(DST), 60, 60]),
        rectangle.clone(),
        inc(4, copy::SET_DST_BLOCK_SIZE, &shape),
        inc(4, copy::SET_DST_BLOCK_SIZE + 16, &[3, 10 << 16 | 30]),
        inc(4, copy::LAUNCH_DMA, &[0x386 & !copy::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask()]),
        // And back, to another place, with origins in words of their own.
        inc(4, copy::OFFSET_IN_UPPER, &[hi(DST), lo(DST), hi(SRC), lo(SRC) + 0x8000]),
        inc(4, copy::SET_SRC_BLOCK_SIZE, &shape),
        inc(4, copy::SET_SRC_BLOCK_SIZE + 16, &[3]),
        inc(4, copy::SRC_ORIGIN_X, &[30, 10]),
        inc(4, copy::LAUNCH_DMA, &[0x386 & !copy::LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask()]),
    ];

    rig.run(&mut channel, &words.concat());

    let (from, back) = (rig.read(source, 4096), rig.read(source + 0x8000, 4096));
    for (line, x) in (0..20u64).flat_map(|line| (0..50u64).map(move |x| (line, x))) {
        let at = (line * 60 + x) as usize;
        let place = blocks_offset(30 + x, 10 + line, 3, width.into(), height.into(), log2);
        assert_eq!(rig.read(target + place, 1)[0], from[at], "line {line} byte {x}");
        assert_eq!(back[at], from[at], "line {line} byte {x}");
    }
}

/// SET_REMAP_COMPONENTS: selects of x to w, component size, source and target components.
fn components(selects: [u32; 4], size: u32, sources: u32, targets: u32) -> u32 {
    let [x, y, z, w] = selects;
    x | y << 4 | z << 8 | w << 12 | (size - 1) << 16 | (sources - 1) << 20 | (targets - 1) << 24
}

#[test]
fn fills_need_no_source() {
    let mut rig = Rig::new();
    let (mut channel, _, target) = setup(&mut rig, graphics());
    let words = [
        inc(4, copy::SET_REMAP_CONST_A, &[0x1234_5678, 0, components([4, 4, 4, 4], 4, 1, 1)]),
        copy_lines(0, DST + 4, 0, (SIZE / 4) as u32 - 2, 1, copy::LAUNCH_DMA::REMAP_ENABLE.mask()),
        inc(4, copy::SET_REMAP_CONST_A, &[0xabcd, 0x77, components([5, 4, 6, 5], 1, 1, 4)]),
        copy_lines(0, DST, 0, 1, 1, copy::LAUNCH_DMA::REMAP_ENABLE.mask()),
    ];

    rig.run(&mut channel, &words.concat());

    let bytes = rig.read(target, SIZE as usize);
    assert_eq!(bytes[..4], [0x77, 0xcd, 0, 0x77], "the third byte stays");
    assert!(bytes[4..SIZE as usize - 4].chunks(4).all(|word| word == [0x78, 0x56, 0x34, 0x12]));
    assert_eq!(bytes[SIZE as usize - 4..], [0; 4]);
    assert!(rig.errors().is_empty(), "{:?}", rig.events);
}

#[test]
fn fills_with_zeros_reach_their_target_and_nothing_else() {
    let mut rig = Rig::new();
    let (mut channel, _, target) = setup(&mut rig, graphics());
    let data = pattern(7, SIZE as usize);
    let zeros =
        |selects, constant| inc(4, copy::SET_REMAP_CONST_A, &[constant, 0, components(selects, 4, 1, 4)]);
    // Element size 16; what the last two ask for is not all zeros, or not all of it.
    for (words, from, to, expected) in [
        (zeros([4, 5, 4, 5], 0), 0x1230, 0xf_1230, Some(0)),
        (zeros([4, 4, 4, 4], 0x0101_0101), 0x1230, 0xf_1230, Some(1)),
        (zeros([4, 6, 4, 4], 0), 0x1230, 0xf_1230, None),
    ] {
        rig.write(target, &data);
        let fill =
            copy_lines(0, DST + from, 0, ((to - from) / 16) as u32, 1, copy::LAUNCH_DMA::REMAP_ENABLE.mask());
        rig.run(&mut channel, &[words, fill].concat());

        let got = rig.read(target, SIZE as usize);
        let (from, to) = (from as usize, to as usize);
        assert!(got[..from] == data[..from] && got[to..] == data[to..]);
        match expected {
            Some(byte) => assert!(got[from..to].iter().all(|&b| b == byte)),
            None => assert!((from..to).all(|at| got[at] == if at / 4 % 4 == 1 { data[at] } else { 0 })),
        }
    }
    assert!(rig.errors().is_empty(), "{:?}", rig.events);
}

#[test]
fn address_space_that_is_gone_is_not_remembered() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        let (mut channel, _, _) = setup(&mut rig, EngineSet::COPY1);
        let words = [bind_copy(), copy_lines(SRC, DST, 4096, 4096, 4, 0)].concat();
        rig.run(&mut channel, &words);
        let space = channel.space;
        rig.gpu.enable_channel(channel.id, false).unwrap();
        rig.gpu.commit_runlist(&[]).unwrap();
        rig.gpu.destroy_channel(channel.id).unwrap();
        rig.gpu.destroy_space(space).unwrap();
    }
    assert_eq!(rig.gpu.remembered_directories(), 0);
}

#[test]
fn components_are_put_together_anew() {
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    rig.write(source, &pattern(1, 3000));
    rig.write(target, &[0xee; 8000]);
    let words = [
        // Three components of two bytes to four: z, constant, kept, x.
        inc(4, copy::SET_REMAP_CONST_A, &[0x9988, 0, components([2, 4, 6, 0], 2, 3, 4)]),
        inc(4, copy::OFFSET_IN_UPPER, &[hi(SRC), lo(SRC), hi(DST), lo(DST), 600, 1600, 100, 5]),
        inc(4, copy::LAUNCH_DMA, &[0x386 | copy::LAUNCH_DMA::REMAP_ENABLE.mask()]),
    ];

    rig.run(&mut channel, &words.concat());

    let (from, to) = (rig.read(source, 3000), rig.read(target, 8000));
    for (line, element) in (0..5).flat_map(|line| (0..100).map(move |element| (line, element))) {
        let (source, target) = (line * 600 + element * 6, line * 1600 + element * 8);
        let expected =
            [from[source + 4], from[source + 5], 0x88, 0x99, 0xee, 0xee, from[source], from[source + 1]];
        assert_eq!(to[target..target + 8], expected, "line {line} element {element}");
    }
    assert!(to[800..1600].iter().all(|&byte| byte == 0xee));
}

#[test]
fn remap_counts_elements_in_blocks_too() {
    let mut rig = Rig::new();
    let (mut channel, source, target) = setup(&mut rig, EngineSet::COPY1);
    rig.write(source, &pattern(1, 4096));
    let words = [
        inc(4, copy::SET_REMAP_COMPONENTS, &[components([3, 2, 1, 0], 1, 4, 4)]),
        inc(4, copy::OFFSET_IN_UPPER, &[hi(SRC), lo(SRC), hi(DST), lo(DST), 256, 0, 64, 16]),
        inc(4, copy::SET_DST_BLOCK_SIZE, &[1 << 12, 100, 32, 1]),
        inc(4, copy::SET_DST_BLOCK_SIZE + 16, &[0, 8 << 16 | 20]),
        inc(
            4,
            copy::LAUNCH_DMA,
            &[(0x386 & !copy::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask()) | copy::LAUNCH_DMA::REMAP_ENABLE.mask()],
        ),
    ];

    rig.run(&mut channel, &words.concat());

    let from = rig.read(source, 4096);
    for (line, x) in (0..16u64).flat_map(|line| (0..64u64).map(move |x| (line, x))) {
        let place = blocks_offset((20 + x) * 4, 8 + line, 0, 400, 32, (0, 0));
        let at = (line * 256 + x * 4) as usize;
        let swapped = [from[at + 3], from[at + 2], from[at + 1], from[at]];
        assert_eq!(rig.read(target + place, 4), swapped, "line {line} element {x}");
    }
}
