import { defineConfig } from 'vitest/config'

/** `npm run screenshots`: the pictures of the documents, of a service that is run as the tests run it. */
export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts', 'test/support/browser-setup.ts'],
    include: ['scripts/screenshots.ts'],
    testTimeout: 300_000,
    hookTimeout: 60_000,
    pool: 'forks',
  },
})
