import type { Theme } from 'vitepress';
import DefaultTheme from 'vitepress/theme-without-fonts';
import { defineComponent, h, onMounted, onUnmounted, ref } from 'vue';
import './style.css';

/** It comes when its page is opened: no other page carries the simulator and the editor. */
const Playground = defineComponent(() => {
  const place = ref<HTMLElement>();
  let unmount = () => {};
  onMounted(async () => {
    const { mount } = await import('../../playground/main.js');
    if (place.value !== undefined) unmount = mount(place.value);
  });
  onUnmounted(() => unmount());
  return () => h('div', { ref: place, style: 'min-height: 80vh' });
});

export default {
  extends: DefaultTheme,
  enhanceApp: ({ app }) => void app.component('Playground', Playground),
} satisfies Theme;
