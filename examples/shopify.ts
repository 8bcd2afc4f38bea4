import { defineConfig, env, key } from 'oncehook'

// Shopify says the same order under several topics, sometimes byte for byte: the key names what the email is about.
export default defineConfig({
  sources: {
    shopify: { provider: 'shopify', secrets: env.list('SHOPIFY_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'shopify',
      type: 'orders/paid',
      email: (order) =>
        order.email && {
          key: key('order', order.id, 'paid'),
          to: order.email,
          from_email: 'billing@example.com',
          subject: `We received your payment for order ${order.name ?? order.id}`,
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'refund',
      source: 'shopify',
      type: 'refunds/create',
      // At Shopify a refund has no address: look it up by its order_id.
      email: (refund) =>
        refund.email && {
          key: key('refund', refund.id, 'created'),
          to: refund.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
  ],
})
