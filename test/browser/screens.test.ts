import axe from 'axe-core'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, test } from 'vitest'
import { hasNoBrowser, openTab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage } from '../support/ops-stage.ts'
import { hostile, ODD_NUMBER, type Stories, tellStories } from '../support/ops-stories.ts'

const database = await testDatabase()
const stage = await openOpsStage(database)
const empty = await openOpsStage(await testDatabase())
const { baseURL, cookies } = stage

let stories: Stories
beforeAll(async () => {
  if (!hasNoBrowser) stories = await tellStories(database, stage)
})

/** What axe finds wrong with the page as it is now: of all its rules, or of those that colours and widths can break. */
async function faults(page: Page, rules?: string[]): Promise<string[]> {
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(axe.source)
  return page.evaluate(async (only) => {
    const { axe: found } = globalThis as unknown as { axe: typeof axe } // the script that has just been run
    const { violations } = await found.run(document, {
      resultTypes: ['violations'],
      rules: { 'target-size': { enabled: true } },
      ...(only && { runOnly: only }),
    })
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary}`))
  }, rules)
}

/** The rules that another theme or width can break. */
const OF_LOOKS = ['color-contrast', 'target-size', 'scrollable-region-focusable']
const WIDTHS = [320, 768, 1440] as const
const THEMES = ['light', 'dark'] as const
/** Of the six looks of a screen two are searched for faults, the narrow light one by all rules; with EVERY_LOOK=1 all six are. */
const everyLook = process.env.EVERY_LOOK === '1'
const isSearched = (width: number, theme: string) => everyLook || (theme === 'light' ? width === 320 : width === 1440)

/** What makes the page wider than the window. */
const overflow = (page: Page) =>
  page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement
    if (scrollWidth <= clientWidth) return []
    return [...document.querySelectorAll('body *')]
      .filter((element) => element.getBoundingClientRect().right > clientWidth)
      .map((element) => element.outerHTML.slice(0, 120))
  })

/** Shows the page in each width and theme, and says what is wrong in each. */
async function look(page: Page): Promise<string[]> {
  const found: string[] = []
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 800 })
    for (const what of await overflow(page)) found.push(`${width}: too wide: ${what}`)
    for (const colorScheme of THEMES.filter((theme) => isSearched(width, theme))) {
      await page.emulateMedia({ colorScheme })
      for (const what of await faults(page, width === 320 && colorScheme === 'light' ? undefined : OF_LOOKS))
        found.push(`${width} ${colorScheme}: ${what}`)
    }
  }
  return found
}

describe.skipIf(hasNoBrowser)('every screen', () => {
  test('C-67 shows what strangers wrote as text, has nothing that axe objects to, and fits from 320 px on, light and dark', {
    timeout: everyLook ? 600_000 : 120_000,
  }, async () => {
    const { page, troubles } = await openTab({ baseURL, cookie: cookies.operator })
    const anonymous = await openTab({ baseURL })
    const found: Record<string, string[]> = {}

    for (const [name, path] of stories.screens) {
      const tab = name === 'sign in' ? anonymous.page : page
      const answer = await tab.goto(path)
      const here = await look(tab)
      if ((answer?.status() ?? 500) >= 500) here.push(`status ${answer?.status()}`)
      const own = await tab.evaluate(() => ({
        scripts: [...document.scripts].filter(({ src }) => !src.startsWith(`${location.origin}/`)).length,
        handlers: document.querySelectorAll('[onerror], [onload], svg[onload], main img').length,
        headings: document.querySelectorAll('h1').length,
      }))
      if (own.scripts > 0 || own.handlers > 0) here.push('something that strangers wrote became an element')
      if (own.headings !== 1) here.push(`${own.headings} main headings`)
      if (here.length > 0) found[name] = here
    }

    expect(found).toEqual({})
    // A browser says so itself of each page that is answered with a status of 400 or more.
    expect([...troubles, ...anonymous.troubles].filter((text) => !/the server responded with a status of 4/.test(text))).toEqual(
      [],
    )
  })

  test('C-67 the signs of an attack, and those that mean something in an address, stand there literally', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator })
    const text = () => page.locator('main').innerText()

    await page.goto('/ops/events')
    expect(await text()).toContain(hostile.id)
    expect(await text()).toContain(hostile.type)
    await page.goto('/ops/sends')
    expect(await text()).toContain(`invoice:${hostile.name}:paid`)
    await page.getByRole('link', { name: `invoice:${ODD_NUMBER}:paid` }).click()
    await page.waitForURL('**/ops/sends/**')
    expect(await page.locator('h1').innerText()).toBe(`invoice:${ODD_NUMBER}:paid`)
    expect(await text()).toMatch(/^✓ Delivered$/m)
    await page.goto(`/ops/events/${stories.event('evt_big')}`)
    expect(await text()).toContain('"amount": 10.00,')
    expect(await text()).toContain('"big": 9007199254740993,')
  })

  test('an installation that nothing has come to yet is as sound, and says what to do', async () => {
    const { page, troubles } = await openTab({ baseURL: empty.baseURL, cookie: empty.cookies.reader })
    const found: Record<string, string[]> = {}

    for (const path of [
      '',
      '/review',
      '/review?tab=reports',
      '/review?tab=events',
      '/sends',
      '/events',
      '/replays',
      '/sources',
      '/audit',
    ]) {
      await page.goto(`/ops${path}`)
      await page.setViewportSize({ width: 320, height: 800 })
      const here = [...(await overflow(page)), ...(await faults(page))]
      if (here.length > 0) found[path] = here
    }

    expect(found).toEqual({})
    await page.goto('/ops/events')
    expect(await page.locator('main').innerText()).toContain('oncehook trigger stripe')
    expect(troubles).toEqual([])
  })
})
