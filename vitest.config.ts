import { defineConfig } from 'vitest/config'

/** Files that start whole processes; what they measure and wait for must not compete with everything else. */
const withProcesses = [
  'commands',
  'crash-rounds',
  'deploy',
  'doctor',
  'fault-kills',
  'many-processes',
  'queue',
  'request-ids',
  'runs-processes',
  'serve-processes',
  'start',
  'startup',
  'storage-outage',
  'tracing',
  'worker-processes',
]
const files = withProcesses.map((name) => `test/${name}.test.ts`)

export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // A condition is waited for, however slow the machine is.
    expect: { poll: { timeout: 20_000 } },
    pool: 'forks',
    projects: [
      {
        extends: true,
        test: {
          name: 'inside',
          include: ['test/**/*.test.ts'],
          exclude: [...files, 'test/browser/**'],
          isolate: false,
          maxWorkers: 3,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          include: ['test/browser/*.test.ts'],
          globalSetup: ['test/support/browser-setup.ts'],
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
      { extends: true, test: { name: 'processes', include: files, maxWorkers: 2, sequence: { groupOrder: 1 } } },
    ],
  },
})
