import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { heapOptions } from '../src/cli/heap-options.ts'

const MIB = 2 ** 20
const all = [
  '--heap-growing-percent=100',
  '--no-allocation-site-pretenuring',
  '--semi-space-growth-factor=4',
  '--minor-gc-task-trigger=25',
]

test('I18 what is new is cleaned at some 16 MiB where its room is large, and else when V8 would', () => {
  expect(heapOptions([], 4_288 * MIB)).toEqual(all)
  expect(heapOptions([], 2_144 * MIB)).toEqual(all.slice(0, 3))
})

const growing = '--heap-growing-percent'
const pretenuring = 'allocation-site-pretenuring'
const growth = '--semi-space-growth-factor'
const trigger = '--minor-gc-task-trigger'

test.each([
  ['--heap-growing-percent=40', [growing]],
  ['--heap_growing_percent=40', [growing]],
  ['--allocation-site-pretenuring', [pretenuring]],
  ['--no_allocation_site_pretenuring', [pretenuring]],
  ['--minor-gc-task-trigger=80', [trigger]],
  ['--no-minor-gc-task', [trigger]],
  ['--enable-source-maps --max-semi-space-size=16', [growth, trigger]],
  ['--semi_space_growth_factor=2', [growth, trigger]],
])('whoever starts node with %s keeps what it has of itself', (given, kept) => {
  expect(heapOptions([given], 4_288 * MIB)).toEqual(all.filter((option) => !kept.some((name) => option.includes(name))))
})

test('this Node knows each of them', () => {
  // At its start it refuses what V8 doesn't know; while it runs that would only be a line on standard error.
  for (const option of all) expect(spawnSync(process.execPath, [option, '--version']).status).toBe(0)
  expect(spawnSync(process.execPath, ['--no-such-option', '--version']).status).toBe(9)
})
