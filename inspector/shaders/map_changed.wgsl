// Cells whose hash is another one now have changed in this step.

@group(0) @binding(0) var<storage, read_write> ages: array<Age>;
@group(0) @binding(1) var<uniform> look: Look;

struct Look {
    cells: u32,
    step: u32,
    begin: u32,   // 1 where counting begins in this step, 2 where it has gone back to it: nothing is compared
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn map_changed(
    @builtin(global_invocation_id) gid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let cell = flat_id(gid, groups);
    if cell >= look.cells {
        return;
    }
    var age = ages[cell];
    if look.begin == 1u {
        age.changed = look.step;
    } else if look.begin == 2u {
        age.changed = min(age.changed, look.step);
    } else if any(age.now != age.before) {
        age.changed = look.step;
    }
    age.before = age.now;
    // Added up anew the next time.
    age.now = vec2(0u);
    ages[cell] = age;
}
