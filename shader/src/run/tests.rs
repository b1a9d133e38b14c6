//! Kernels of the test's cubin, run.

use std::path::Path;

use super::*;
use gpuvmk_shader::cubin::Cubin;

fn cubin() -> Cubin {
    Cubin::read(include_bytes!("../../tests/kernels.cubin")).unwrap()
}

fn options(kernel: &str, grid: u32, block: u32, arg: &[String]) -> RunOptions {
    RunOptions {
        file: "kernels.cubin".into(),
        kernel: kernel.to_owned(),
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared: 0,
        arg: arg.to_vec(),
        trace: false,
        check: false,
    }
}

fn floats(count: u32, of: impl Fn(f32) -> f32) -> Vec<f32> {
    (0..u16::try_from(count).unwrap()).map(|index| of(f32::from(index))).collect()
}

fn write(path: &Path, values: &[f32]) {
    fs::write(path, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}

#[test]
fn a_product_of_matrices_from_files_to_a_file_without_findings() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    let size = 64_u32;
    let (left, right) = (floats(size * size, |index| index % 7.0), floats(size * size, |index| index % 5.0));
    write(&a, &left);
    write(&b, &right);
    let arguments = [
        format!("file:{}", a.display()),
        format!("file:{}", b.display()),
        format!("new:{}>{}", size * size * 4, c.display()),
        format!("u32:{size}"),
    ];
    let cubin = cubin();
    let kernel = cubin.kernel("product").unwrap();
    for check in [false, true] {
        let options = RunOptions { check, ..options("product", 1, 256, &arguments) };
        let found = run(cubin.arch, kernel, &options).unwrap();
        assert!(found.findings.is_empty(), "of a kernel as it was compiled: {:?}", found.findings);
        assert!(found.instructions > 1000);
        let stored = fs::read(&c).unwrap();
        let stored: Vec<f32> = stored.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let size = size as usize;
        for (index, value) in stored.iter().enumerate() {
            let (row, column) = (index / size, index % size);
            let sum: f32 = (0..size).map(|k| left[row * size + k] * right[k * size + column]).sum();
            assert!((sum - value).abs() < 1e-3, "element {index}: {value}, not {sum}");
        }
        fs::remove_file(&c).unwrap();
    }
}

#[test]
fn checks_find_what_is_wrong() {
    let cubin = cubin();
    let kernel = cubin.kernel("product").unwrap();
    let findings = |kernel: &Kernel, first: &str| {
        let arguments = [first, "zero:16384", "zero:16384", "u32:64"].map(str::to_owned);
        let options = RunOptions { check: true, ..options("product", 1, 256, &arguments) };
        run(cubin.arch, kernel, &options).unwrap().findings.len()
    };
    assert_eq!(findings(kernel, "zero:16384"), 0);
    assert!(findings(kernel, "new:16384") > 0, "memory never written");
    // Without its barriers, and without its waits.
    let changed = |change: &dyn Fn(&mut [u8; 16])| {
        let mut kernel = kernel.clone();
        kernel.code.as_chunks_mut().0.iter_mut().for_each(change);
        kernel
    };
    let no_barriers = changed(&|word| {
        // BAR becomes NOP, with the same control bits.
        if u16::from_le_bytes([word[0], word[1]]) & 0xfff == 0xb1d {
            let control = [word[13], word[14], word[15]];
            *word = [0; 16];
            word[..2].copy_from_slice(&0x7918_u16.to_le_bytes());
            word[13..].copy_from_slice(&control);
        }
    });
    assert!(findings(&no_barriers, "zero:16384") > 0, "races");
    let no_waits = changed(&|word| {
        // Bits 121:116.
        word[14] &= 0x0f;
        word[15] &= 0xfc;
    });
    assert!(findings(&no_waits, "zero:16384") > 0, "waits");
}

#[test]
fn what_does_not_fit_is_refused() {
    let cubin = cubin();
    let refused = |kernel: &str, block: u32, arg: &[&str]| {
        let arguments: Vec<String> = arg.iter().map(|argument| (*argument).to_owned()).collect();
        let options = options(kernel, 1, block, &arguments);
        let error = run(cubin.arch, cubin.kernel(kernel).unwrap(), &options).unwrap_err();
        format!("{error:#}")
    };
    assert!(refused("mixed", 32, &["zero:128"]).contains("takes 3 arguments, 1 are given"));
    let error = refused("mixed", 32, &["u32:1", "u32:1", "u32:1"]);
    assert!(error.contains("argument 1 has 4 bytes, the kernel takes 8"), "{error}");
    let error = refused("mixed", 2048, &["zero:128", "u32:1", "u32:1"]);
    assert!(error.contains("cannot be launched"), "{error}");
    let error = refused("mixed", 64, &["zero:128", "u32:1", "u32:1"]);
    assert!(error.contains("stopped at offset 0x") && error.contains("Write"), "{error}");
    let kernel = cubin.kernel("empty").unwrap();
    let error = run(Arch::Sm120, kernel, &options("empty", 1, 32, &[])).unwrap_err().to_string();
    assert!(error.contains("SM 120, which the software GPU does not execute"), "{error}");
}
