/// <reference lib="dom" />
import { type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { afterAll, inject, onTestFinished } from 'vitest'

const url = inject('browserUrl')

/** For `test.skipIf`: there is no browser on this machine. */
export const hasNoBrowser = url === null

const connection = url === null ? undefined : chromium.connect(url)
afterAll(async () => (await connection)?.close())

export interface Visitor extends BrowserContextOptions {
  baseURL: string
  /** The value of a `Cookie` header: one cookie. */
  cookie?: string
}

/** A tab, and everything that went wrong in it: errors and warnings of its console, its script, and its security policy; dialogs; other origins. */
export interface Tab {
  page: Page
  troubles: string[]
  /** Requests, in their order. */
  requests: { url: string; bytes(): Promise<number> }[]
}

/** Opens a browser of its own with one tab, which is closed after the test. */
export async function openTab({ baseURL, cookie, ...options }: Visitor): Promise<Tab> {
  const browser = await connection
  if (!browser) throw new Error('no browser')
  const context = await browser.newContext({ locale: 'en-US', timezoneId: 'UTC', baseURL, ...options })
  onTestFinished(() => context.close())
  if (cookie !== undefined) {
    const [name = '', value = ''] = cookie.split('=', 2)
    await context.addCookies([{ name, value, url: baseURL, httpOnly: true, sameSite: 'Lax' }])
  }
  // Sooner than the test's own end, so that it says what was waited for.
  context.setDefaultTimeout(20_000)
  const page = await context.newPage()
  return { page, ...watch(page, baseURL) }
}

function watch(page: Page, baseURL: string): Omit<Tab, 'page'> {
  const troubles: string[] = []
  const requests: Tab['requests'] = []
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) troubles.push(message.text())
  })
  page.on('pageerror', (error) => troubles.push(error.message))
  page.on('dialog', async (dialog) => {
    troubles.push(`dialog: ${dialog.message()}`)
    await dialog.dismiss()
  })
  page.on('request', (request) => {
    if (!request.url().startsWith(baseURL) && !request.url().startsWith('data:'))
      troubles.push(`another origin: ${request.url()}`)
    if (!request.url().startsWith('data:'))
      requests.push({ url: request.url(), bytes: async () => (await request.sizes()).responseBodySize })
  })
  return { troubles, requests }
}
