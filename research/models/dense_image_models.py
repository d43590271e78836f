"""Models of the zoo from images to images or boxes, and with norms that stay: detection, depth, diffusion."""

from __future__ import annotations

import torch

from research.models import dense_networks, normalised_networks, volume_networks
from research.models.zoo_model import ZooModel, image_model, vision

_ONNX = ("onnx",)

DENSE_IMAGE_MODELS: dict[str, ZooModel] = {
    name: image_model(build, size, output, _ONNX)
    for name, size, output, build in (
        ("yolo-nano", 320, "boxes", dense_networks.yolo_nano),
        ("ssd-mobilenetv3", 320, "boxes", dense_networks.ssd_mobilenet),
        ("unet-small", 256, "scores", dense_networks.unet_small),
        ("deeplabv3-mobilenetv3", 256, "scores", dense_networks.deeplab_mobilenet),
        ("lraspp-mobilenetv3", 256, "scores", dense_networks.lraspp_mobilenet),
        ("segformer-b0", 256, "logits", vision("SegformerForSemanticSegmentation", "SegformerConfig")),
        (
            "depth-anything-small",
            224,
            "predicted_depth",
            dense_networks.depth_anything_small,
        ),
        (
            "yolos-tiny",
            224,
            "pred_boxes",
            vision(
                "YolosForObjectDetection",
                "YolosConfig",
                "pred_boxes",
                hidden_size=192,
                num_attention_heads=3,
                intermediate_size=768,
                image_size=[224, 224],
                num_detection_tokens=100,
                attn_implementation="eager",
            ),
        ),
        (
            "swin2sr-lightweight",
            64,
            "reconstruction",
            vision(
                "Swin2SRForImageSuperResolution",
                "Swin2SRConfig",
                "reconstruction",
                embed_dim=60,
                depths=[2, 2],
                num_heads=[6, 6],
                upsampler="pixelshuffledirect",
            ),
        ),
    )
} | {
    "espcn": ZooModel(
        dense_networks.espcn, lambda: (torch.randn(1, 1, 180, 320),), ("luma",), ("image",), _ONNX
    ),
    "edsr-small": image_model(dense_networks.edsr_small, 96, "image", _ONNX),
    "diffusion-unet": ZooModel(
        normalised_networks.DiffusionUnet,
        lambda: (torch.randn(1, 3, 32, 32), torch.randn(1, 64)),
        ("image", "step"),
        ("noise",),
        _ONNX,
    ),
    "style-transfer": image_model(normalised_networks.StyleTransfer, 128, "image", _ONNX),
    "pointnet": ZooModel(
        normalised_networks.PointNet, lambda: (torch.randn(1, 3, 1024),), ("cloud",), ("scores",), _ONNX
    ),
    "video-classifier": ZooModel(
        volume_networks.video_classifier,
        lambda: (torch.randn(1, 3, 16, 112, 112),),
        ("frames",),
        ("scores",),
        _ONNX,
    ),
    "resnet-cbam": image_model(normalised_networks.GatedResNet, 160, "scores", _ONNX),
}
