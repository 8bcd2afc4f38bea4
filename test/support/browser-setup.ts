import sparticuz from '@sparticuz/chromium'
import { chromium } from 'playwright-core'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the browser of the run is reached; null where none could be started. */
    browserUrl: string | null
  }
}

/** One Chromium for the run, which npm has brought; CHROMIUM_PATH names another. It runs on Linux x64; elsewhere its tests are skipped. */
export default async function setup(project: TestProject) {
  const canBring = process.platform === 'linux' && process.arch === 'x64'
  const executablePath = process.env.CHROMIUM_PATH ?? (canBring ? await sparticuz.executablePath() : undefined)
  if (executablePath === undefined) {
    console.warn('No Chromium for this platform: the tests in a browser are skipped. CHROMIUM_PATH names one.')
    project.provide('browserUrl', null)
    return
  }
  // In a single process the browser would end with the first tab that is closed.
  const args = sparticuz.args.filter((arg) => arg !== '--single-process' && arg !== '--no-zygote')
  const server = await chromium.launchServer({ executablePath, args: [...args, '--no-sandbox'], headless: true })
  project.provide('browserUrl', server.wsEndpoint())
  return () => server.close()
}
