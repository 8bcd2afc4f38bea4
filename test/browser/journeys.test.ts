import type { Locator, Page } from 'playwright-core'
import { describe, expect, test } from 'vitest'
import { hasNoBrowser, openTab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage, paidInvoice } from '../support/ops-stage.ts'

const database = await testDatabase()
const stage = await openOpsStage(database)
const { baseURL, cookies, service } = stage

// Delivered; three that nobody knows the outcome of; and an event that no rule wants.
await stage.postStripe(paidInvoice('evt_1042', 'INV-1042', 'ada@example.com'))
await stage.work()
service.sandbox.armReports({ kind: 'never' }, { times: 'always' })
service.sandbox.arm({ kind: 'cut_after_accept' }, { times: 3 })
await stage.postStripe(paidInvoice('evt_1050', 'INV-1050', 'bob@example.com'))
await stage.work()
await stage.postStripe(paidInvoice('evt_1051', 'INV-1051', 'cy@example.com'))
await stage.work()
await stage.postStripe(paidInvoice('evt_1052', 'INV-1052', 'di@example.com'))
await stage.work()
await stage.postStripe(
  JSON.stringify({
    id: 'evt_7',
    object: 'event',
    type: 'charge.disputed',
    created: 1,
    livemode: true,
    data: { object: { id: 'dp_77' } },
  }),
)
await stage.work()

const hands = ['keyboard', 'mouse'] as const

/** A tab on the overview, and a count of the steps that a person takes: a click, a shortcut, or a text with the Enter after it. */
async function start(options: { javaScriptEnabled?: boolean } = {}) {
  const tab = await openTab({ baseURL, cookie: cookies.operator, viewport: { width: 1280, height: 720 }, ...options })
  await tab.page.goto('/ops')
  let steps = 0
  return {
    ...tab,
    steps: () => steps,
    async click(name: string | RegExp, role: 'link' | 'button' = 'link') {
      steps += 1
      await tab.page.getByRole(role, { name }).first().click()
      await tab.page.waitForLoadState()
    },
    async clickOn(target: Locator) {
      steps += 1
      await target.click()
    },
    async press(key: string) {
      steps += 1
      await tab.page.keyboard.press(key)
      await tab.page.waitForLoadState()
    },
    /** Writes into the field that has the focus. */
    async type(text: string) {
      steps += 1
      await tab.page.keyboard.insertText(text)
    },
    /** Looks for a text by the box of the header, wherever one is. */
    async search(text: string, by: (typeof hands)[number]) {
      steps += 2
      if (by === 'keyboard') await tab.page.keyboard.press('/')
      else await tab.page.locator('#search').click()
      await tab.page.keyboard.insertText(text)
      await Promise.all([tab.page.waitForEvent('load'), tab.page.keyboard.press('Enter')])
    },
    /** Goes on by Tab until something of this name has the focus, and presses Enter on it: by keyboard alone, in as many steps as it takes. */
    async tabTo(name: RegExp) {
      const focused = () => tab.page.evaluate(() => document.activeElement?.textContent?.trim() ?? '')
      for (let step = 0; step < 80; step += 1) {
        await tab.page.keyboard.press('Tab')
        if (name.test(await focused())) return Promise.all([tab.page.waitForEvent('load'), tab.page.keyboard.press('Enter')])
      }
      throw new Error(`nothing of the name ${name} can be reached by Tab`)
    },
  }
}

/** Where the paragraph that begins so ends on the screen; asked in one go, as it may be renewed at any moment. */
const bottomOf = (page: Page, text: string) =>
  page.evaluate((start) => {
    const found = [...document.querySelectorAll('main p')].find((part) => part.textContent.startsWith(start))
    return found?.getBoundingClientRect().bottom ?? Number.POSITIVE_INFINITY
  }, text)

const mainText = (page: Page) => page.locator('main').innerText()

describe.skipIf(hasNoBrowser)('the five questions', () => {
  test.each(hands)('1: did the customer get the receipt? Two steps by %s, and the first line is the answer', async (by) => {
    const { page, search, steps, troubles } = await start()

    await search('INV-1042', by)

    expect(steps()).toBe(2)
    await page.waitForURL('**/ops/sends/**')
    expect(await mainText(page)).toMatch(/Delivered to ada@example\.com at .* reported by Inboxili\. Sent once, 1 call\./)
    expect(await bottomOf(page, 'Delivered to ada@')).toBeLessThan(720)
    await page.setViewportSize({ width: 390, height: 844 })
    expect(await bottomOf(page, 'Delivered to ada@')).toBeLessThan(844)
    expect(troubles).toEqual([])
  })

  test('1: without a hit the page says what was searched and where the chain broke', async () => {
    const { page, search } = await start()

    await search('dp_77', 'keyboard')

    expect(await mainText(page)).toMatch(/no rule/i)
    expect(await mainText(page)).toContain('evt_7')
    await search('INV-9999', 'keyboard')
    expect(await mainText(page)).toMatch(/No event that is stored names it/)
    expect(await mainText(page)).toMatch(/Searched keys of sends, recipients, message IDs, event IDs/)
  })

  test.each([
    ['keyboard', 'INV-1050', 'INV-1051'],
    ['mouse', 'INV-1051', 'INV-1052'],
  ] as const)(
    '2: what needs my decision? By %s one step to the oldest case, %s; three more, and the next, %s, is open',
    async (by, oldest, next) => {
      const { page, press, click, clickOn, type, steps, troubles } = await start()
      const stateOf = async () =>
        (await database.pool.query('select state from email_sends where dedupe_key = $1', [`invoice:${oldest}:paid`])).rows[0]
          ?.state

      if (by === 'keyboard') {
        await press('g')
        // `g` `r` is one shortcut.
        await page.keyboard.press('r')
      } else await click(/^Needs a decision/)
      expect(steps()).toBe(1)
      await page.waitForURL('**/ops/review**')
      expect(await page.locator('.pane h2').first().innerText()).toBe(`invoice:${oldest}:paid`)
      expect(await mainText(page)).toMatch(/We don't know whether this email was sent/)
      expect(await mainText(page)).toMatch(/Evidence/)
      expect(await mainText(page)).toMatch(/Suggestion: CAN'T TELL/)
      expect(await bottomOf(page, 'Suggestion: ')).toBeLessThan(720)

      if (by === 'keyboard') {
        await press('1')
        await type('seen in the sending log')
        await Promise.all([page.waitForEvent('load'), press('Control+Enter')])
      } else {
        await clickOn(page.locator('summary', { hasText: 'It was sent' }))
        await clickOn(page.getByLabel('seen in the sending log').filter({ visible: true }))
        await clickOn(page.getByRole('button', { name: 'Save and next' }))
        await page.waitForURL(/done=|review\?/)
      }

      expect(steps()).toBe(4)
      await expect.poll(stateOf).toBe('sent')
      await expect.poll(() => page.locator('.pane h2').first().innerText()).toBe(`invoice:${next}:paid`)
      expect(await page.locator('#status').innerText()).toContain(oldest)
      expect(troubles).toEqual([])
    },
  )

  test('3: is anything stuck? No step: six cells in words, the worst in the title, and a fault shows by itself', async () => {
    const { page, troubles } = await start()

    for (const cell of ['Receiving', 'Processing', 'Sending', 'Delivery reports', 'Decisions', 'Storage'])
      expect(await mainText(page)).toContain(cell)
    const before = await page.title()
    expect(before).toMatch(/^! .+: .+ · Overview · Oncehook$/)
    await database.pool.query(
      `update sending_control set held_reason = 'the API key was refused (401)', held_at = now(), version = version + 1`,
    )

    await expect.poll(() => mainText(page)).toMatch(/paused|held/i)
    await expect.poll(() => page.title()).toMatch(/^✕ Sending: .+ · Overview · Oncehook$/)
    await database.pool.query('update sending_control set held_reason = null, held_at = null, version = version + 1')
    await expect.poll(() => page.title()).toBe(before)
    expect(troubles).toEqual([])
  })

  test.each(hands)(
    '4: what happened with this event? Two steps by %s to its story, and the next link leads to its send',
    async (by) => {
      const { page, search, click, tabTo, steps, troubles } = await start()

      await search('evt_1042', by)

      expect(steps()).toBe(2)
      await page.waitForURL('**/ops/events/*')
      const text = await mainText(page)
      expect(text).toMatch(/verified by secret 1/)
      expect(text).toContain('invoice:INV-1042:paid')
      if (by === 'keyboard') await tabTo(/^invoice:INV-1042:paid$/)
      else await click('invoice:INV-1042:paid')
      await page.waitForURL('**/ops/sends/**')
      expect(troubles).toEqual([])
    },
  )

  test('5: can I safely replay last night? Four clicks, the third shows what it would do, and nothing goes out twice', async () => {
    const { page, click, steps, troubles } = await start()
    await database.pool.query(
      // One o'clock of the night that has ended last.
      `update webhook_events set received_at = date_trunc('day', now() - interval '6 hours', 'UTC') + interval '1 hour'
       where event_id like 'evt_%'`,
    )
    const calls = service.sandbox.requests

    await click('Events')
    await click('Last night')
    await click(/^Replay th/, 'button')
    await expect.poll(() => mainText(page)).toMatch(/Dry run: nothing has happened/)
    expect(steps()).toBe(3)
    expect(await mainText(page)).toMatch(/0 emails would be sent/)
    await click(/Start replay of these/, 'button')

    expect(steps()).toBe(4)
    await expect.poll(() => mainText(page)).toMatch(/gone through/)
    await stage.work()
    expect(service.sandbox.requests).toBe(calls)
    expect(troubles).toEqual([])
  })

  test('5: the same by keyboard alone, and what was replayed before is no email either', async () => {
    const { page, press, tabTo } = await start()
    const calls = service.sandbox.requests

    await press('g')
    await page.keyboard.press('e')
    await page.waitForURL('**/ops/events')
    await tabTo(/^Last night$/)
    await tabTo(/^Replay these…$/)
    expect(await mainText(page)).toMatch(/Dry run: nothing has happened/)
    await tabTo(/^Start replay of these/)

    expect(await mainText(page)).toMatch(/gone through/)
    await stage.work()
    expect(service.sandbox.requests).toBe(calls)
  })

  test('all of them can be answered without JavaScript', async () => {
    const { page, click } = await start({ javaScriptEnabled: false })
    const search = async (text: string) => {
      await page.locator('#search').fill(text)
      await Promise.all([page.waitForEvent('load'), page.keyboard.press('Enter')])
    }

    await search('INV-1042')
    expect(await mainText(page)).toMatch(/Delivered to ada@example\.com/)
    await search('evt_1042')
    expect(await mainText(page)).toMatch(/verified by secret 1/)
    await click(/Needs a decision/)
    expect(await mainText(page)).toContain('invoice:INV-1052:paid')
    await click('Overview')
    expect(await mainText(page)).toContain('Receiving')
    await click('Events')
    await click('Last night')
    await click(/^Replay th/, 'button')
    expect(await mainText(page)).toMatch(/Dry run: nothing has happened/)
    await click(/Start replay of these/, 'button')
    expect(await mainText(page)).toMatch(/gone through/)
    await click(/Needs a decision/)
    await page.locator('summary', { hasText: 'It was sent' }).click()
    await page.getByLabel('the customer has it').filter({ visible: true }).check()
    await click('Save and next', 'button')
    expect(await page.locator('#status').innerText()).toContain('INV-1052')
    expect(await mainText(page)).toContain('Nothing needs a decision')
  })

  test('I17 nothing that was searched, shown or decided is in the log', () => {
    expect(stage.log.length).toBeGreaterThan(0)
    expect(stage.log.filter((line) => /@example\.com|INV-\d|[?&]q=|sending log|customer says/.test(line))).toEqual([])
  })
})
