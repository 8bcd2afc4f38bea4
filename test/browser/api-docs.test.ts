import { expect, test } from 'vitest'
import { hasNoBrowser, openTab } from '../support/browser.ts'
import { testDatabase } from '../support/database.ts'
import { openOpsStage } from '../support/ops-stage.ts'

const { baseURL } = await openOpsStage(await testDatabase())

test.skipIf(hasNoBrowser)('GET /docs shows every operation under the strict policy, and asks nobody else', async () => {
  const { page, troubles, requests } = await openTab({ baseURL })
  await page.goto('/docs')
  const document = (await (await fetch(`${baseURL}/openapi.json`)).json()) as { paths: Record<string, object> }
  const operations = Object.values(document.paths).flatMap((path) => Object.keys(path))

  await page.locator('.opblock').first().waitFor()
  await page.getByText('/v1/sends/{key}/resolve', { exact: true }).click()
  await page.getByText('The key, percent-encoded').first().waitFor()

  expect(await page.locator('.opblock').count()).toBe(operations.length)
  expect(troubles).toEqual([])
  expect(requests.map(({ url }) => new URL(url).pathname)).toEqual([
    '/docs',
    '/docs/swagger-ui.css',
    '/docs/swagger-ui-bundle.js',
    '/docs/start.js',
    '/openapi.json',
  ])
})
