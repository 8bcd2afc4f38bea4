import { request } from 'node:http'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, test } from 'vitest'
import { hasNoBrowser, openTab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage } from '../support/ops-stage.ts'
import { type Stories, tellStories } from '../support/ops-stories.ts'

const database = await testDatabase()
const stage = await openOpsStage(database)
const { baseURL, cookies } = stage
const delivered = `/ops/sends/${encodeURIComponent('invoice:INV-1042:paid')}`

let stories: Stories
beforeAll(async () => {
  if (!hasNoBrowser) stories = await tellStories(database, stage)
})

/** The bytes of an answer as they go over the wire, head left out. */
const weigh = (path: string) =>
  new Promise<number>((done, fail) => {
    const headers = { cookie: cookies.operator, 'accept-encoding': 'gzip' }
    request(`${baseURL}${path}`, { headers }, (answer) => {
      let bytes = 0
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.length
      })
      answer.on('end', () => done(bytes))
    })
      .on('error', fail)
      .end()
  })

/** Saves the look of the signed-in person by the form of the settings. */
async function choose(page: Page, fields: { theme?: string; time_zone?: string }): Promise<void> {
  await page.goto('/ops/settings')
  if (fields.theme) await page.getByLabel('Theme').selectOption(fields.theme)
  if (fields.time_zone) await page.getByLabel('Time zone').fill(fields.time_zone)
  await Promise.all([page.waitForEvent('load'), page.getByRole('button', { name: 'Save', exact: true }).click()])
}

const background = (page: Page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor)

describe.skipIf(hasNoBrowser)('how it looks', () => {
  test('every page is at most 50 kB, compressed, in at most six requests, all of them to us', async () => {
    const { page, requests, troubles } = await openTab({ baseURL, cookie: cookies.operator })
    await page.goto('/ops')
    await page.locator('[data-stream]:not(html)').getByText('Live').waitFor()
    const paths = requests.map(({ url }) => new URL(url).pathname)
    expect(paths.length).toBeLessThanOrEqual(6)
    let shared = 0
    for (const path of paths.filter((path) => path.startsWith('/ops/assets/'))) shared += await weigh(path)

    const heavy: string[] = []
    for (const [name, path] of stories.screens.filter(([name]) => name !== 'charts')) {
      const bytes = shared + (await weigh(path))
      if (bytes > 50_000) heavy.push(`${name}: ${bytes}`)
    }

    expect(shared).toBeGreaterThan(10_000)
    expect(heavy).toEqual([])
    expect(troubles).toEqual([])
  })

  test('times stand in the zone of the person, with and without scripts, on both sides of a change of clocks; `u` shows UTC', async () => {
    const [before, after] = [stories.event('evt_1050'), stories.event('evt_1051')]
    const set = 'update webhook_events set received_at = $2 where id = $1'
    // Half past two in Berlin, twice.
    await database.pool.query(set, [before, '2026-10-25T00:30:00Z'])
    await database.pool.query(set, [after, '2026-10-25T01:30:00Z'])
    const { page } = await openTab({ baseURL, cookie: cookies.operator, timezoneId: 'America/New_York' })
    const bare = await openTab({ baseURL, cookie: cookies.operator, javaScriptEnabled: false })
    await choose(page, { time_zone: 'Europe/Berlin' })

    for (const tab of [page, bare.page]) {
      await tab.goto(`/ops/events/${before}`)
      expect(await tab.locator('main').innerText()).toContain('Received 2026-10-25 02:30:00 UTC+02:00')
      await tab.goto(`/ops/events/${after}`)
      expect(await tab.locator('main').innerText()).toContain('Received 2026-10-25 02:30:00 UTC+01:00')
      expect(await tab.locator('footer').innerText()).toContain('Times in Europe/Berlin')
    }
    await page.keyboard.press('u')
    expect(await page.locator('main').innerText()).toMatch(/Received 2026-10-25 01:30:00 UTC[^+]/)
    expect(await page.locator('footer').innerText()).toContain('Times in UTC')
    await page.keyboard.press('u')
    expect(await page.locator('main').innerText()).toContain('02:30:00')

    await page.goto('/ops/sends')
    await page.locator('[data-row] time').first().hover()
    expect(await page.getByRole('tooltip').innerText()).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC$/)
    await page.keyboard.press('Escape')
    expect(await page.getByRole('tooltip').count()).toBe(0)
    await choose(page, { time_zone: 'UTC' })
  })

  test('it is dark where the system is, unless the person has chosen', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator, colorScheme: 'dark' })
    const [dark, light] = ['rgb(20, 23, 26)', 'rgb(255, 255, 255)']

    await page.goto('/ops')
    expect(await background(page)).toBe(dark)
    await choose(page, { theme: 'light' })
    expect(await background(page)).toBe(light)
    await choose(page, { theme: 'dark' })
    await page.emulateMedia({ colorScheme: 'light' })
    expect(await background(page)).toBe(dark)
    await choose(page, { theme: 'system' })
    expect(await background(page)).toBe(light)
  })

  test.each([
    ['light', 'rgb(213, 218, 222)'],
    ['dark', 'rgb(48, 55, 61)'],
  ] as const)('the large charts are drawn in the colours of the theme: %s', async (colorScheme, line) => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator, colorScheme })
    await page.goto('/ops/charts')
    const canvas = page.locator('[data-chart] canvas').first()
    await canvas.waitFor()

    const colors = await canvas.evaluate((element: HTMLCanvasElement) => {
      const { data } = element.getContext('2d')?.getImageData(0, 0, element.width, element.height) ?? { data: [] }
      return Array.from({ length: data.length / 4 }, (_, pixel) => data.slice(pixel * 4, pixel * 4 + 4))
        .filter(([, , , alpha]) => alpha === 255)
        .map(([red, green, blue]) => `rgb(${red}, ${green}, ${blue})`)
    })
    expect(colors).toContain(line)
  })

  test('a print has everything that is folded, and nothing to click', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator, javaScriptEnabled: false })
    await page.goto(delivered)
    await page.emulateMedia({ media: 'print' })

    for (const text of ['Your receipt for INV-1042', 'Nobody has decided anything about this send.'])
      expect(await page.getByText(text).first().isVisible(), text).toBe(true)
    for (const part of ['header nav', 'form[role=search]', '.by-api', '.actions'])
      expect(await page.locator(part).first().isVisible(), part).toBe(false)
  })

  test.each(['/ops', '/ops/review', '/ops/sends', '/ops/events', delivered])(
    'whoever goes through %s by keyboard sees where they are, at every step',
    async (path) => {
      const { page } = await openTab({ baseURL, cookie: cookies.operator, viewport: { width: 1280, height: 720 } })
      await page.goto(path)
      const seen: string[] = []
      const unseen: string[] = []

      for (let step = 0; step < 60; step += 1) {
        await page.keyboard.press('Tab')
        const here = await page.evaluate(() => {
          const element = document.activeElement
          if (!element || element === document.body) return undefined
          const { outlineStyle, outlineWidth } = getComputedStyle(element)
          const { top, bottom, left, right, width, height } = element.getBoundingClientRect()
          const isInside = bottom > 0 && top < innerHeight && right > 0 && left < innerWidth && width > 0 && height > 0
          const name = `${element.tagName} ${element.textContent?.trim().slice(0, 40)}`
          return { name, isMarked: outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2 && isInside }
        })
        if (!here) break
        seen.push(here.name)
        if (!here.isMarked) unseen.push(here.name)
      }

      expect(seen[0]).toBe('A Skip to the content')
      expect(seen.length).toBeGreaterThan(10)
      expect(unseen).toEqual([])
    },
  )

  test('the keys go through a list, open a row, tick it, and say what they are; none counts while somebody types', async () => {
    const { page } = await openTab({ baseURL, cookie: cookies.operator })
    await page.goto('/ops/sends?status=needs_review')
    const current = () => page.locator('tr.current').getAttribute('data-row')
    const rows = await page.locator('[data-row]').evaluateAll((all) => all.map((row) => row.getAttribute('data-row')))

    await page.keyboard.press('j')
    await page.keyboard.press('j')
    expect(await current()).toBe(rows[1])
    await page.keyboard.press('x')
    expect(await page.locator('tr.current input[type=checkbox]').isChecked()).toBe(true)
    await page.keyboard.press('k')
    expect(await current()).toBe(rows[0])
    await page.keyboard.press('?')
    expect(await page.getByRole('dialog').innerText()).toMatch(/Needs a decision/)
    await page.keyboard.press('Escape')
    expect(await page.getByRole('dialog').count()).toBe(0)
    await page.locator('#search').fill('')
    await page.locator('#search').press('j')
    await page.locator('#search').press('u')
    expect(await page.locator('#search').inputValue()).toBe('ju')
    expect(await current()).toBe(rows[0])

    await page.locator('tr.current a').focus()
    await Promise.all([page.waitForURL('**/ops/sends/**'), page.keyboard.press('Enter')])
    expect(await page.locator('h1').innerText()).toBe(rows[0])
  })
})
